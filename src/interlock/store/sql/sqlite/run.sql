-- Queries on run, run_plan and lease.

-- name: insert_run
INSERT INTO run (id, workflow, state, key, parent, parent_unit, root, forked_from, fork_step, plan_hash,
  params_hash, params_json, created_at)
VALUES (?, ?, 'active', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_plan
INSERT INTO run_plan (run_seq, json) VALUES (?, ?)

-- name: keyed_run
SELECT id FROM run WHERE key = ? AND plan_hash = ? AND params_hash = ?

-- name: run_seq
SELECT seq FROM run WHERE id = ?

-- name: run_state
SELECT state FROM run WHERE seq = ?

-- name: fence
-- One row, and only while this holder and term own the run (a child with the run that has no parent), with its last
-- event. Inside BEGIN IMMEDIATE nobody can change that.
SELECT run.seq, run.state, (SELECT coalesce(max(id), 0) FROM event WHERE run_seq = run.seq)
FROM run JOIN run AS top ON top.id = coalesce(run.root, run.id) JOIN lease ON lease.run_seq = top.seq
WHERE run.id = ? AND top.id = ? AND lease.holder = ? AND lease.term = ? AND lease.released = 0

-- name: move_run
UPDATE run SET state = ?, reason = ?, detail = ?, outcome = ?, wait_until = ?, driven_ms = ?, ended_at = ?
WHERE seq = ? AND state = ?

-- name: unfinished_steps
SELECT count(*) FROM step WHERE run_seq = ? AND state NOT IN ('completed', 'skipped')

-- name: run_by_id
SELECT id, workflow, state, reason, detail, outcome, wait_until, key, parent, plan_hash, params_json, created_at,
  ended_at, driven_ms, forked_from, fork_step, parent_unit, root
FROM run WHERE id = ?

-- name: runs
SELECT id, workflow, state, reason, detail, outcome, wait_until, key, parent, plan_hash, params_json, created_at,
  ended_at, driven_ms, forked_from, fork_step, parent_unit, root
FROM run
WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR workflow = ?2) AND (?3 OR parent IS NULL)
  AND (NOT ?5 OR state IN ('active', 'waiting', 'blocked'))
ORDER BY seq DESC LIMIT ?4

-- name: child_runs
SELECT id, workflow, state, reason, detail, outcome, wait_until, key, parent, plan_hash, params_json, created_at,
  ended_at, driven_ms, forked_from, fork_step, parent_unit, root
FROM run WHERE parent = ? ORDER BY seq

-- name: forks
-- A child run that is a fork counts as the whole that it goes on, and ends, with.
SELECT top.id, top.state FROM run JOIN run AS top ON top.id = coalesce(run.root, run.id)
WHERE run.forked_from = ? ORDER BY run.seq

-- name: match_runs
-- A range, not LIKE: the prefix is a person's text and may hold wildcards.
SELECT id FROM run WHERE id >= ?1 AND id < ?1 || char(1114111) ORDER BY seq DESC LIMIT 10

-- name: plan_of_run
SELECT run.plan_hash, run_plan.json FROM run JOIN run_plan ON run_plan.run_seq = run.seq WHERE run.id = ?

-- name: insert_lease
INSERT INTO lease (holder, term, pid, start_ticks, boot_id, pid_namespace, host, since_ms, renewed_ms, expires_ms,
  expires_boot_ms, released, run_seq)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: read_lease
SELECT top.id, holder, term, pid, start_ticks, boot_id, pid_namespace, host, since_ms, renewed_ms, expires_ms,
  expires_boot_ms, released
FROM run JOIN run AS top ON top.id = coalesce(run.root, run.id) JOIN lease ON lease.run_seq = top.seq WHERE run.id = ?

-- name: unreleased_leases
-- Whatever the run's state: one that is reopened has ended until its driver's first commit.
SELECT run.id, holder, term, pid, start_ticks, boot_id, pid_namespace, host, since_ms, renewed_ms, expires_ms,
  expires_boot_ms, released
FROM lease JOIN run ON run.seq = lease.run_seq
WHERE lease.released = 0 AND (?1 IS NULL OR run.workflow = ?1) ORDER BY run.seq DESC

-- name: take_lease
UPDATE lease SET holder = ?, term = ?, pid = ?, start_ticks = ?, boot_id = ?, pid_namespace = ?, host = ?,
  since_ms = ?, renewed_ms = ?, expires_ms = ?, expires_boot_ms = ?, released = ?
WHERE run_seq = ? AND holder = ? AND term = ? AND released = ? AND renewed_ms = ? AND term < ?

-- name: renew_lease
UPDATE lease SET renewed_ms = ?, expires_ms = ?, expires_boot_ms = ?
WHERE run_seq = (SELECT seq FROM run WHERE id = ?) AND holder = ? AND term = ? AND released = 0

-- name: release_lease
UPDATE lease SET released = 1
WHERE run_seq = (SELECT seq FROM run WHERE id = ?) AND holder = ? AND term = ? AND released = 0

-- name: last_event
SELECT coalesce(max(id), 0) FROM event WHERE run_seq = ?

-- name: insert_event
INSERT INTO event (run_seq, id, at, type, step, unit, data) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: events
SELECT id, at, type, step, unit, data FROM event
WHERE run_seq = (SELECT seq FROM run WHERE id = ?) AND id > ? ORDER BY id LIMIT ?

-- name: last_event_at
-- Of the run and of all below it: while its child works a run has no events of its own.
WITH RECURSIVE below (id, seq) AS (
  SELECT id, seq FROM run WHERE seq = ?
  UNION ALL SELECT run.id, run.seq FROM run JOIN below ON run.parent = below.id
)
SELECT max((SELECT at FROM event WHERE run_seq = below.seq ORDER BY id DESC LIMIT 1)) FROM below

-- name: last_move_at
-- Where its driven time was counted last: at its birth, or with a move of the run.
SELECT at FROM event WHERE run_seq = ? AND type IN ('run_created', 'run_moved') ORDER BY id DESC LIMIT 1
