-- Queries for taking a run out of the journal whole, whatever columns and tables this version has.

-- name: family
-- The run and all runs below it, oldest first.
WITH RECURSIVE family (id) AS (
  VALUES (?)
  UNION
  SELECT run.id FROM run JOIN family ON run.parent = family.id
)
SELECT run.seq, run.id FROM run JOIN family ON family.id = run.id ORDER BY run.seq

-- name: dump_tables
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name

-- name: dump_columns
SELECT name, pk FROM pragma_table_info(?) ORDER BY cid

-- name: dump_plan
SELECT run.plan_hash, run_plan.json, run.params_json FROM run JOIN run_plan ON run_plan.run_seq = run.seq WHERE run.seq = ?

-- name: dump_place
SELECT parent, parent_unit FROM run WHERE seq = ?

-- name: dump_top
-- The last run above it that is there.
WITH RECURSIVE above (id, level) AS (
  VALUES (?, 0)
  UNION ALL
  SELECT run.parent, level + 1 FROM above JOIN run ON run.id = above.id WHERE run.parent IS NOT NULL
)
SELECT above.id FROM above JOIN run ON run.id = above.id ORDER BY level DESC LIMIT 1

-- name: dump_items
SELECT item FROM unit WHERE run_seq = ? AND item IS NOT NULL

-- name: dump_contents
SELECT result FROM unit WHERE run_seq = ?1 AND result IS NOT NULL
UNION ALL
SELECT artifact FROM step WHERE run_seq = ?1 AND artifact IS NOT NULL

-- name: dump_artifacts
SELECT DISTINCT artifact_hash FROM step
WHERE run_seq = ? AND artifact IS NULL AND artifact_size IS NOT NULL ORDER BY artifact_hash

-- name: dump_missing
-- What a journal with the runs 1 to ?1 can't be without, of which the first is told.
SELECT told FROM (
  SELECT 'there is no row of one of its runs, or of its plan' AS told
  WHERE (SELECT count(*) FROM run JOIN run_plan ON run_plan.run_seq = run.seq) < ?1
  UNION ALL
  SELECT 'the steps of a run are not all there'
  FROM (SELECT count(*) AS n, max(step) AS last FROM step GROUP BY run_seq) WHERE n <= last
  UNION ALL
  SELECT 'a unit is of a step that is not there' FROM unit
  WHERE NOT EXISTS (SELECT 1 FROM step WHERE step.run_seq = unit.run_seq AND step.step = unit.step)
  UNION ALL
  SELECT 'the units of a step are not all there'
  FROM (SELECT count(*) AS n, max(ordinal) AS last FROM unit GROUP BY run_seq, step) WHERE n <= last
  UNION ALL
  SELECT 'an attempt is of a unit that is not there' FROM attempt
  WHERE NOT EXISTS (
    SELECT 1 FROM unit
    WHERE unit.run_seq = attempt.run_seq AND unit.step = attempt.step AND unit.ordinal = attempt.unit
  )
  UNION ALL
  SELECT 'an approval is of a unit that is not there' FROM approval
  WHERE NOT EXISTS (
    SELECT 1 FROM unit
    WHERE unit.run_seq = approval.run_seq AND unit.step = approval.step AND unit.ordinal = approval.unit
  )
  UNION ALL
  SELECT 'an event is of a step that is not there' FROM event
  WHERE step IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM step WHERE step.run_seq = event.run_seq AND step.step = event.step)
)
LIMIT 1;
