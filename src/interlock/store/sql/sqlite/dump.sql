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

-- name: dump_items
SELECT item FROM unit WHERE run_seq = ? AND item IS NOT NULL

-- name: dump_contents
SELECT result FROM unit WHERE run_seq = ?1 AND result IS NOT NULL
UNION ALL
SELECT artifact FROM step WHERE run_seq = ?1 AND artifact IS NOT NULL

-- name: dump_artifacts
SELECT DISTINCT artifact_hash FROM step
WHERE run_seq = ? AND artifact IS NULL AND artifact_size IS NOT NULL ORDER BY artifact_hash
