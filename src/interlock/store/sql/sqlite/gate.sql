-- Queries on gates: what stands between an artifact and its step's completion, and what people said.

-- name: gate_missing
-- The first stage that has not passed what the step would promote, and of which item (-1: the artifact); no row: all have.
-- Parameters: run, step, the artifact's hash. What a stage must have passed is the artifact, or with `each_item` the
-- result of every completed item that counts (an absent one counts as null). It has when a strict majority of the
-- units asked about it say so: of this round and loop for an artifact; for an item of the last in which it was asked,
-- since one that passed is not asked again. Or when the last person who overrode the gate for it let it pass. EXCEPT
-- and not NOT IN: a NULL anywhere must not open the gate.
WITH
stage (place, name, kind) AS (VALUES (1, 'check', 'gate'), (2, 'judge', 'judge'), (3, 'approval', 'approval')),
needed (kind) AS (
  SELECT stage.kind FROM step CROSS JOIN stage
  WHERE step.run_seq = ?1 AND step.step = ?2 AND instr(step.stages, stage.name) > 0
),
subject (idx, hash) AS (
  SELECT -1, ?3 FROM step WHERE step.run_seq = ?1 AND step.step = ?2 AND step.each_item = 0
  UNION ALL
  SELECT coalesce(unit.idx, -1), tagged_sha256(coalesce(unit.result, CAST('null' AS BLOB)))
  FROM step CROSS JOIN unit ON unit.run_seq = step.run_seq AND unit.step = step.step
  WHERE step.run_seq = ?1 AND step.step = ?2 AND step.each_item = 1 AND step.stages <> ''
    AND unit.state = 'completed' AND unit.counted = 1
),
asked (kind, idx, hash, yes, turn) AS (
  SELECT unit.kind, CASE step.each_item WHEN 1 THEN coalesce(unit.idx, -1) ELSE -1 END, unit.subject,
    unit.state = 'completed' AND coalesce(unit.verdict = 'pass', 0),
    dense_rank() OVER (PARTITION BY unit.kind, unit.idx, unit.subject ORDER BY unit.round DESC, unit.loop DESC)
  FROM step CROSS JOIN unit ON unit.run_seq = step.run_seq AND unit.step = step.step
  WHERE step.run_seq = ?1 AND step.step = ?2 AND step.stages <> '' AND unit.kind <> 'work'
    AND (step.each_item = 1 OR (unit.round = step.round AND unit.loop = step.loop))
),
overridden (idx, hash, verdict, turn) AS (
  SELECT CASE step.each_item WHEN 1 THEN coalesce(unit.idx, -1) ELSE -1 END, approval.subject, approval.verdict,
    row_number() OVER (
      PARTITION BY CASE step.each_item WHEN 1 THEN unit.idx END, approval.subject ORDER BY approval.unit DESC
    )
  FROM step CROSS JOIN approval ON approval.run_seq = step.run_seq AND approval.step = step.step
  JOIN unit ON unit.run_seq = step.run_seq AND unit.step = step.step AND unit.ordinal = approval.unit
  WHERE step.run_seq = ?1 AND step.step = ?2 AND approval.override = 1
),
missing (kind, idx, hash) AS (
  SELECT needed.kind, subject.idx, subject.hash FROM needed CROSS JOIN subject
  EXCEPT SELECT kind, idx, hash FROM asked WHERE turn = 1 GROUP BY kind, idx, hash HAVING 2 * sum(yes) > count(*)
  EXCEPT SELECT needed.kind, overridden.idx, overridden.hash FROM needed CROSS JOIN overridden
  WHERE overridden.turn = 1 AND overridden.verdict = 'pass'
)
SELECT stage.name, missing.idx FROM missing JOIN stage ON stage.kind = missing.kind
ORDER BY stage.place, missing.idx LIMIT 1

-- name: approve_unit
-- Only what waits for a person, and only for what the person saw.
UPDATE unit SET state = 'completed', verdict = ?, result = ?, reason = NULL, ended_at = ?
WHERE run_seq = ? AND step = ? AND ordinal = ? AND subject = ? AND kind = 'approval' AND state = 'pending'

-- name: insert_approval
INSERT INTO approval (run_seq, step, unit, at, made_by, verdict, subject, override, note)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: approvals
SELECT step, unit, at, made_by, verdict, subject, override, note FROM approval WHERE run_seq = ? ORDER BY step, unit
