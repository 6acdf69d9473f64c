-- Queries on step.

-- name: insert_step
INSERT INTO step (run_seq, step, id, stages, each_item, child) VALUES (?, ?, ?, ?, ?, ?)

-- name: step_state
SELECT state, round, loop FROM step WHERE run_seq = ? AND step = ?

-- name: start_step
UPDATE step SET state = 'running', reason = NULL, detail = '', round = ?, loop = ?,
  started_at = coalesce(started_at, ?), ended_at = NULL
WHERE run_seq = ? AND step = ? AND state = ?

-- name: ask_step
UPDATE step SET state = ?, started_at = coalesce(started_at, ?) WHERE run_seq = ? AND step = ? AND state = ?

-- name: move_step
UPDATE step SET state = ?, reason = ?, detail = ?, started_at = coalesce(started_at, ?), ended_at = ?
WHERE run_seq = ? AND step = ? AND state = ?

-- name: complete_step
-- No row while a counted unit may still move. The gate has been looked at in the same transaction: gate_missing.
UPDATE step SET state = 'completed', reason = ?, detail = ?, artifact = ?, artifact_hash = ?, artifact_size = ?,
  route = ?, started_at = coalesce(started_at, ?), ended_at = ?
WHERE run_seq = ? AND step = ? AND state = ?
  AND NOT EXISTS (
    SELECT 1 FROM unit
    WHERE unit.run_seq = step.run_seq AND unit.step = step.step
      AND unit.state IN ('pending', 'running', 'waiting', 'unknown') AND unit.counted = 1
  )

-- name: steps
SELECT step, step.id, step.state, step.reason, step.detail, round, loop, stages, each_item, child, artifact,
  artifact_hash, artifact_size, route, started_at, step.ended_at
FROM step JOIN run ON run.seq = step.run_seq WHERE run.id = ? ORDER BY step

-- name: artifact
SELECT artifact, artifact_hash, artifact_size FROM step
WHERE run_seq = (SELECT seq FROM run WHERE id = ?) AND step = ?

-- name: artifact_owner
-- Who names the file: that step of that run, or of those that do the newest.
SELECT run.id, step.id, top.workflow
FROM step JOIN run ON run.seq = step.run_seq JOIN run AS top ON top.id = coalesce(run.root, run.id)
WHERE artifact_hash = ?1 AND (?2 IS NULL OR (run.id = ?2 AND step = ?3)) ORDER BY run.seq DESC, step LIMIT 1

-- name: referenced_artifacts
SELECT DISTINCT artifact_hash FROM step WHERE artifact IS NULL AND artifact_size IS NOT NULL
