-- Queries on unit and attempt.

-- name: insert_unit
INSERT INTO unit (run_seq, step, ordinal, state, kind, counted, round, loop, idx, id, subject, input_hash, session,
  base, worktree, feedback, item)
VALUES (?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: take_over_unit
-- In the transaction in which it was inserted: nobody else ever saw it pending.
UPDATE unit SET state = ?, reason = ?, verdict = ?, result = ?, reused = ?, ended_at = ?, left_at = ?
WHERE run_seq = ? AND step = ? AND ordinal = ? AND state = 'pending'

-- name: supersede_units
-- The units that new ones stand for leave the census. -1 stands for the one unit of a solo step.
UPDATE unit SET counted = 0
WHERE run_seq = ?1 AND step = ?2 AND ordinal < ?3 AND counted = 1 AND coalesce(idx, -1) IN (
  SELECT coalesce(idx, -1) FROM unit WHERE run_seq = ?1 AND step = ?2 AND ordinal >= ?3 AND kind = 'work'
)

-- name: reserve_unit
-- An approval is a person's: no dispatch ever answers it.
UPDATE unit SET state = 'running', attempt = ?, dispatch = ?, not_before = NULL, started_at = ?
WHERE run_seq = ? AND step = ? AND ordinal = ? AND attempt = ? AND state IN ('pending', 'waiting')
  AND kind <> 'approval'

-- name: reserve_attempt
INSERT INTO attempt (run_seq, step, unit, number, state, dispatch, pid, start_ticks, boot_id, engine, model,
  reserve_tokens, reserved_at)
VALUES (?, ?, ?, ?, 'reserved', ?, ?, ?, ?, ?, ?, ?, ?)

-- name: plant_attempt
-- What only an attempt in a worktree has; a statement of its own, so that all others do not pay for it.
UPDATE attempt SET worktree = ?, base = ? WHERE run_seq = ? AND step = ? AND unit = ? AND number = ?

-- name: plant_unit
UPDATE unit SET worktree = ? WHERE run_seq = ? AND step = ? AND ordinal = ?

-- name: start_attempt
UPDATE attempt SET state = 'started', pid = ?, start_ticks = ?, boot_id = ?, started_at = ?
WHERE run_seq = ? AND step = ? AND unit = ? AND number = ? AND dispatch = ? AND state = 'reserved'

-- name: finish_attempt
-- The one terminal write: by dispatch id, never by lease, and never over an end that stands.
UPDATE attempt SET state = ?, reason = ?, error = ?, exit_code = ?, pid = coalesce(?, pid),
  start_ticks = coalesce(?, start_ticks), boot_id = coalesce(?, boot_id), log_offset = ?, log_length = ?,
  started_at = coalesce(?, started_at), ended_at = ?
WHERE run_seq = ? AND step = ? AND unit = ? AND number = ? AND dispatch = ? AND ended_at IS NULL

-- name: use_attempt
-- What only an engine's answer has; a statement of its own, so that commands and functions do not pay for it.
UPDATE attempt SET input_tokens = ?, output_tokens = ?, cached_tokens = ?, reasoning_tokens = ?, cost_usd = ?,
  estimated = ?, answered_model = ?, session = ?, request_id = ?
WHERE run_seq = ? AND step = ? AND unit = ? AND number = ? AND dispatch = ?

-- name: leave_attempt
UPDATE attempt SET base = ?, kept_ref = ?, kept_commit = ?
WHERE run_seq = ? AND step = ? AND unit = ? AND number = ? AND dispatch = ?

-- name: leave_unit
UPDATE unit SET base = coalesce(base, ?), left_at = ?
WHERE run_seq = ? AND step = ? AND ordinal = ? AND attempt = ? AND state = 'running'

-- name: worktrees
-- Of ended attempts that kept nothing too: their folders may be there after a crash.
SELECT attempt.step, attempt.unit, unit.id, number, attempt.state, attempt.worktree, attempt.base, kept_ref, kept_commit
FROM attempt JOIN unit ON unit.run_seq = attempt.run_seq AND unit.step = attempt.step AND unit.ordinal = attempt.unit
WHERE attempt.run_seq = ? AND attempt.worktree IS NOT NULL
ORDER BY attempt.step, attempt.unit, number

-- name: finish_unit
-- No row when the attempt is no longer the unit's last: its end is recorded, the unit has moved on.
UPDATE unit SET state = ?, retries = ?, asks = ?, reason = ?, error = ?, result = ?, verdict = ?, not_before = ?,
  session = coalesce(?, session), started_at = coalesce(?, started_at), ended_at = ?
WHERE run_seq = ? AND step = ? AND ordinal = ? AND attempt = ? AND state = 'running'

-- name: unit_state
SELECT state FROM unit WHERE run_seq = ? AND step = ? AND ordinal = ?

-- name: move_unit
-- A question that is put again has its own re-ask and retries; work keeps what it spent.
UPDATE unit SET state = ?, reason = ?, error = coalesce(?, error), result = ?, not_before = NULL, ended_at = ?,
  asks = CASE kind WHEN 'work' THEN asks ELSE 0 END, retries = CASE kind WHEN 'work' THEN retries ELSE 0 END
WHERE run_seq = ? AND step = ? AND ordinal = ? AND state = ?

-- name: fail_waiting_units
-- Of work the counted units, whatever round they are of; of questions those of this round and loop.
UPDATE unit SET state = 'failed', not_before = NULL, ended_at = ?
WHERE run_seq = ? AND step = ? AND state = 'waiting'
  AND (counted = 1 OR (kind <> 'work' AND round = ? AND loop = ?))

-- name: drop_pending_units
UPDATE unit SET state = 'not_run', reason = ?, ended_at = ?
WHERE run_seq = ? AND step = ? AND state = 'pending'
  AND (counted = 1 OR (kind <> 'work' AND round = ? AND loop = ?))

-- name: units
-- One page: after (step, ordinal), so that no statement stays open while the caller works.
SELECT unit.step, ordinal, unit.id, kind, round, loop, idx, item, feedback, subject, input_hash, unit.state, unit.attempt,
  retries, asks, not_before, unit.reason, unit.error, result, verdict, unit.dispatch, unit.session, unit.base,
  unit.worktree, unit.left_at, unit.started_at,
  unit.ended_at, attempt.engine, coalesce(attempt.answered_model, attempt.model),
  coalesce(attempt.input_tokens + attempt.output_tokens, attempt.input_tokens, attempt.output_tokens), attempt.cost_usd,
  unit.reused
FROM unit LEFT JOIN attempt ON attempt.run_seq = unit.run_seq AND attempt.step = unit.step
  AND attempt.unit = unit.ordinal AND attempt.number = unit.attempt
WHERE unit.run_seq = ?1 AND (unit.step, ordinal) > (?2, ?3) AND unit.step <= ?4 AND (?5 IS NULL OR unit.state = ?5)
ORDER BY unit.step, ordinal LIMIT ?6

-- name: attempts
SELECT step, unit, number, dispatch, state, reason, error, exit_code, engine, model, reserve_tokens,
  answered_model, session, request_id, input_tokens, output_tokens, cost_usd, cached_tokens, reasoning_tokens, estimated, pid, start_ticks, boot_id,
  log_offset, log_length, reserved_at, started_at, ended_at
FROM attempt WHERE run_seq = (SELECT seq FROM run WHERE id = ?) AND step = ? AND unit = ? ORDER BY number

-- name: open_attempts
-- An attempt is open exactly while its unit runs, so the units' index finds the few among many.
SELECT attempt.step, attempt.unit, number, attempt.dispatch, attempt.state, attempt.reason, attempt.error, exit_code,
  engine, model, reserve_tokens, answered_model, attempt.session, request_id, input_tokens, output_tokens, cost_usd, cached_tokens,
  reasoning_tokens, estimated, pid, start_ticks, boot_id, log_offset, log_length, reserved_at, attempt.started_at,
  attempt.ended_at
FROM step
JOIN unit ON unit.run_seq = step.run_seq AND unit.step = step.step AND unit.state = 'running'
JOIN attempt ON attempt.run_seq = unit.run_seq AND attempt.step = unit.step AND attempt.unit = unit.ordinal
  AND attempt.number = unit.attempt
WHERE step.run_seq = ? AND attempt.ended_at IS NULL
ORDER BY attempt.step, attempt.unit

-- name: census
SELECT step, state, reason, sum(counted) FROM unit WHERE run_seq = ? GROUP BY step, state, reason

-- name: reused
SELECT step, sum(counted) FROM unit WHERE run_seq = ? AND reused IS NOT NULL GROUP BY step

-- name: dispatched
-- Attempts are numbered from 1 without gaps, so the numbers of work units add up to their dispatches. A child run is
-- none itself: what it dispatches is.
WITH RECURSIVE family (seq, id) AS (
  SELECT seq, id FROM run WHERE id = ?1
  UNION ALL SELECT run.seq, run.id FROM family JOIN run ON run.parent = family.id
)
SELECT coalesce(sum(attempt), 0), count(CASE WHEN asks > 0 AND unit.state = 'completed' THEN 1 END)
FROM unit JOIN step ON step.run_seq = unit.run_seq AND step.step = unit.step AND step.child = 0
WHERE unit.run_seq IN (SELECT seq FROM family) AND kind = 'work'

-- name: spent
WITH RECURSIVE family (seq, id) AS (
  SELECT seq, id FROM run WHERE id = ?2
  UNION ALL SELECT run.seq, run.id FROM family JOIN run ON run.parent = family.id
)
SELECT coalesce(sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0)), 0), coalesce(sum(cost_usd), 0.0),
  coalesce(sum(CASE estimated WHEN 1 THEN coalesce(input_tokens, 0) + coalesce(output_tokens, 0) ELSE 0 END), 0),
  count(CASE WHEN engine IS NOT NULL AND ended_at IS NOT NULL AND cost_usd IS NULL THEN 1 END),
  count(CASE WHEN engine IS NOT NULL AND instr(error, ?1) > 0 THEN 1 END)
FROM attempt WHERE run_seq IN (SELECT seq FROM family)

-- name: session_usage
-- By session; what is unknown of one answer is unknown of the sum.
SELECT session, CASE WHEN count(input_tokens) = count(*) THEN sum(input_tokens) END,
  CASE WHEN count(output_tokens) = count(*) THEN sum(output_tokens) END,
  CASE WHEN count(cost_usd) = count(*) THEN sum(cost_usd) END,
  CASE WHEN count(cached_tokens) = count(*) THEN sum(cached_tokens) END,
  CASE WHEN count(reasoning_tokens) = count(*) THEN sum(reasoning_tokens) END
FROM attempt WHERE run_seq = ? AND session IS NOT NULL GROUP BY session HAVING max(estimated) = 0

-- name: usage_history
-- Of all runs, the latest ends first. Tokens that were only estimated would make estimates out of estimates; a cost is
-- always told, also by engines that count no tokens.
SELECT engine, model, CASE WHEN estimated = 0 THEN input_tokens END, CASE WHEN estimated = 0 THEN output_tokens END, cost_usd
FROM attempt
WHERE engine IS NOT NULL AND ended_at IS NOT NULL
  AND (cost_usd IS NOT NULL OR estimated = 0 AND (input_tokens IS NOT NULL OR output_tokens IS NOT NULL))
ORDER BY ended_at DESC LIMIT ?
