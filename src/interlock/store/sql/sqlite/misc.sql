-- Queries on requests, amendments and notices, and the removal of a run.

-- name: insert_request
INSERT INTO request (run_seq, kind, payload_json, made_at, made_by) VALUES (?, ?, ?, ?, ?)

-- name: requests
SELECT request.id, run.id, kind, payload_json, made_at, made_by, request.outcome
FROM request JOIN run ON run.seq = request.run_seq
WHERE run.id = ? AND (request.outcome IS NULL OR ? = 0) ORDER BY request.id

-- name: open_requests
SELECT request.id, run.id, kind, payload_json, made_at, made_by, request.outcome
FROM request JOIN run ON run.seq = request.run_seq
WHERE request.outcome IS NULL AND (run.id = ?1 OR run.root = ?1) ORDER BY request.id

-- name: apply_request
UPDATE request SET outcome = ?, applied_at = ? WHERE id = ? AND run_seq = ? AND outcome IS NULL

-- name: raise_budget
INSERT INTO budget_raise (run_seq, name, value) VALUES (?, ?, ?)
ON CONFLICT (run_seq, name) DO UPDATE SET value = excluded.value

-- name: raised
SELECT name, value FROM budget_raise WHERE run_seq = ?

-- name: park_engine
INSERT INTO parked (run_seq, engine, until) VALUES (?, ?, ?)
ON CONFLICT (run_seq, engine) DO UPDATE SET until = excluded.until

-- name: parked
SELECT engine, until FROM parked WHERE run_seq = ?

-- name: grant_loops
INSERT INTO granted_loops (run_seq, step, loops) VALUES (?, ?, ?)
ON CONFLICT (run_seq, step) DO UPDATE SET loops = loops + excluded.loops

-- name: granted
SELECT step, loops FROM granted_loops WHERE run_seq = ?

-- name: accept_hash
INSERT INTO accepted_hash (run_seq, name, hash) VALUES (?, ?, ?)
ON CONFLICT (run_seq, name) DO UPDATE SET hash = excluded.hash

-- name: accepted
SELECT name, hash FROM accepted_hash WHERE run_seq = ?

-- name: insert_notice
INSERT INTO notice (run_seq, code) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: notices
SELECT code FROM notice WHERE run_seq = ?

-- name: delete_events
DELETE FROM event WHERE run_seq = ?

-- name: delete_attempts
DELETE FROM attempt WHERE run_seq = ?

-- name: delete_units
DELETE FROM unit WHERE run_seq = ?

-- name: delete_steps
DELETE FROM step WHERE run_seq = ?

-- name: delete_requests
DELETE FROM request WHERE run_seq = ?

-- name: delete_raises
DELETE FROM budget_raise WHERE run_seq = ?

-- name: delete_parked
DELETE FROM parked WHERE run_seq = ?

-- name: delete_granted
DELETE FROM granted_loops WHERE run_seq = ?

-- name: delete_approvals
DELETE FROM approval WHERE run_seq = ?

-- name: delete_accepted
DELETE FROM accepted_hash WHERE run_seq = ?

-- name: delete_notices
DELETE FROM notice WHERE run_seq = ?

-- name: delete_lease
DELETE FROM lease WHERE run_seq = ?

-- name: delete_plan
DELETE FROM run_plan WHERE run_seq = ?

-- name: delete_run
DELETE FROM run WHERE seq = ?
