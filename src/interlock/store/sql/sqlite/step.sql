-- Queries on step.

-- name: insert_step
INSERT INTO step (run_seq, step, id, gate) VALUES (?, ?, ?, ?)

-- name: step_state
SELECT state, round, loop, gate FROM step WHERE run_seq = ? AND step = ?

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
-- The only way to `completed`. It matches no row while a counted unit may still move or the gate has not passed:
-- `step`: a gate unit of this round and loop passed this very artifact;
-- `each`: every completed item has a gate unit of its own that passed this very result (absent counts as null).
UPDATE step SET state = 'completed', reason = ?, detail = ?, artifact = ?, artifact_hash = ?, artifact_size = ?,
  route = ?, started_at = coalesce(started_at, ?), ended_at = ?
WHERE run_seq = ? AND step = ? AND state = ?
  AND NOT EXISTS (
    SELECT 1 FROM unit
    WHERE unit.run_seq = step.run_seq AND unit.step = step.step
      AND unit.state IN ('pending', 'running', 'waiting', 'unknown') AND unit.counted = 1
  )
  AND CASE gate
    WHEN 'none' THEN 1
    WHEN 'step' THEN EXISTS (
      SELECT 1 FROM unit
      WHERE unit.run_seq = step.run_seq AND unit.step = step.step AND unit.state = 'completed'
        AND unit.kind = 'gate' AND unit.verdict = 'pass' AND unit.round = step.round AND unit.loop = step.loop
        AND unit.subject = ?
    )
    ELSE NOT EXISTS (
      SELECT 1 FROM unit
      WHERE unit.run_seq = step.run_seq AND unit.step = step.step AND unit.state = 'completed' AND unit.counted = 1
        AND unit.idx || ':' || tagged_sha256(coalesce(unit.result, CAST('null' AS BLOB))) NOT IN (
          SELECT asked.idx || ':' || asked.subject FROM unit AS asked
          WHERE asked.run_seq = step.run_seq AND asked.step = step.step AND asked.state = 'completed'
            AND asked.kind = 'gate' AND asked.verdict = 'pass' AND asked.idx IS NOT NULL
        )
    )
  END

-- name: open_counted_units
SELECT count(*) FROM unit
WHERE run_seq = ? AND step = ? AND state IN ('pending', 'running', 'waiting', 'unknown') AND counted = 1

-- name: steps
SELECT step, step.id, step.state, step.reason, step.detail, round, loop, gate, artifact, artifact_hash, artifact_size,
  route, started_at, step.ended_at
FROM step JOIN run ON run.seq = step.run_seq WHERE run.id = ? ORDER BY step

-- name: artifact
SELECT artifact, artifact_hash, artifact_size FROM step
WHERE run_seq = (SELECT seq FROM run WHERE id = ?) AND step = ?

-- name: referenced_artifacts
SELECT DISTINCT artifact_hash FROM step WHERE artifact IS NULL AND artifact_size IS NOT NULL
