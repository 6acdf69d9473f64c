-- Journal format 1. Keys are small sequential integers; names and hashes are plain columns, never keys.
-- A CHECK ties each state to what must be set in it, so no writer, ours or a stranger's, can store nonsense.

CREATE TABLE run (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, -- never reused: a deleted run's number must not name another run
  id TEXT NOT NULL UNIQUE CHECK (id <> ''),
  workflow TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('active', 'waiting', 'blocked', 'completed', 'failed', 'abandoned')),
  reason TEXT,
  detail TEXT NOT NULL DEFAULT '',
  outcome TEXT CHECK (outcome IN ('ok', 'degraded', 'failed', 'abandoned')),
  wait_until INTEGER,
  key TEXT,
  parent TEXT,
  plan_hash TEXT NOT NULL,
  params_hash TEXT NOT NULL,
  params_json BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  ended_at INTEGER,
  driven_ms INTEGER NOT NULL DEFAULT 0 CHECK (driven_ms >= 0),
  CHECK ((state IN ('completed', 'failed', 'abandoned')) = (ended_at IS NOT NULL)),
  CHECK ((state = 'waiting') = (wait_until IS NOT NULL)),
  CHECK (outcome IS NULL OR ended_at IS NOT NULL),
  CHECK (state <> 'completed' OR outcome IN ('ok', 'degraded')),
  CHECK (state NOT IN ('blocked', 'failed') OR reason IS NOT NULL)
) STRICT;

CREATE UNIQUE INDEX run_key ON run (key, plan_hash, params_hash) WHERE key IS NOT NULL;

CREATE TABLE run_plan (
  run_seq INTEGER PRIMARY KEY REFERENCES run (seq),
  json BLOB NOT NULL
) STRICT;

CREATE TABLE lease (
  run_seq INTEGER PRIMARY KEY REFERENCES run (seq),
  holder TEXT NOT NULL CHECK (holder <> ''),
  term INTEGER NOT NULL CHECK (term > 0),
  pid INTEGER NOT NULL,
  start_ticks INTEGER NOT NULL,
  boot_id TEXT NOT NULL,
  pid_namespace TEXT NOT NULL,
  host TEXT NOT NULL,
  since_ms INTEGER NOT NULL,
  renewed_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  expires_boot_ms INTEGER NOT NULL,
  released INTEGER NOT NULL DEFAULT 0 CHECK (released IN (0, 1))
) STRICT;

CREATE TABLE step (
  run_seq INTEGER NOT NULL REFERENCES run (seq),
  step INTEGER NOT NULL CHECK (step >= 0),
  id TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'pending' CHECK (
    state IN ('pending', 'running', 'gating', 'waiting', 'blocked', 'completed', 'failed', 'skipped')
  ),
  reason TEXT,
  detail TEXT NOT NULL DEFAULT '',
  round INTEGER NOT NULL DEFAULT 1 CHECK (round >= 1),
  loop INTEGER NOT NULL DEFAULT 1 CHECK (loop >= 1),
  gate TEXT NOT NULL CHECK (gate IN ('none', 'step', 'each')),
  artifact_hash TEXT,
  artifact_size INTEGER,
  route TEXT NOT NULL DEFAULT '[]',
  started_at INTEGER,
  ended_at INTEGER,
  artifact BLOB, -- NULL with a size: the content lies in a file named by the hash
  PRIMARY KEY (run_seq, step),
  CHECK ((state IN ('completed', 'failed', 'skipped')) = (ended_at IS NOT NULL)),
  CHECK (state NOT IN ('blocked', 'failed') OR reason IS NOT NULL),
  CHECK (state = 'completed' OR (artifact_hash IS NULL AND artifact_size IS NULL AND artifact IS NULL)),
  CHECK (artifact_size IS NULL OR artifact_hash IS NOT NULL),
  CHECK (artifact IS NULL OR artifact_size = length(artifact)),
  CHECK (state NOT IN ('running', 'gating') OR started_at IS NOT NULL)
) STRICT, WITHOUT ROWID;

-- `counted` marks the work units that the census looks at: the last round and loop of each item.
CREATE TABLE unit (
  run_seq INTEGER NOT NULL REFERENCES run (seq),
  step INTEGER NOT NULL,
  ordinal INTEGER NOT NULL CHECK (ordinal >= 0),
  state TEXT NOT NULL CHECK (
    state IN ('pending', 'running', 'waiting', 'unknown', 'completed', 'failed', 'not_run')
  ),
  kind TEXT NOT NULL CHECK (kind IN ('work', 'gate', 'probe')),
  counted INTEGER NOT NULL CHECK (counted = 0 OR (counted = 1 AND kind = 'work')),
  round INTEGER NOT NULL CHECK (round >= 1),
  loop INTEGER NOT NULL CHECK (loop >= 1),
  idx INTEGER,
  attempt INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
  retries INTEGER NOT NULL DEFAULT 0 CHECK (retries >= 0),
  not_before INTEGER,
  reason TEXT,
  verdict TEXT CHECK (verdict IN ('pass', 'reject')),
  started_at INTEGER,
  ended_at INTEGER,
  id TEXT NOT NULL,
  subject TEXT,
  input_hash TEXT NOT NULL,
  dispatch TEXT,
  error TEXT NOT NULL DEFAULT '',
  item BLOB,
  result BLOB,
  PRIMARY KEY (run_seq, step, ordinal),
  CHECK ((state IN ('completed', 'failed', 'not_run')) = (ended_at IS NOT NULL)),
  CHECK ((state = 'waiting') = (not_before IS NOT NULL)),
  CHECK (state NOT IN ('waiting', 'failed', 'not_run') OR reason IS NOT NULL),
  CHECK (state <> 'completed' OR reason IS NULL),
  CHECK (state = 'completed' OR (result IS NULL AND verdict IS NULL)),
  CHECK (state NOT IN ('running', 'unknown', 'waiting') OR (attempt > 0 AND dispatch IS NOT NULL)),
  CHECK (verdict IS NULL OR (kind = 'gate' AND subject IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- Covers the census whole, and finds the few running units (whose attempts are open) among many.
CREATE INDEX unit_census ON unit (run_seq, step, state, reason, counted);

CREATE TABLE attempt (
  run_seq INTEGER NOT NULL REFERENCES run (seq),
  step INTEGER NOT NULL,
  unit INTEGER NOT NULL,
  number INTEGER NOT NULL CHECK (number >= 1),
  state TEXT NOT NULL CHECK (state IN ('reserved', 'started', 'completed', 'failed', 'aborted', 'lost')),
  dispatch TEXT NOT NULL CHECK (dispatch <> ''),
  reason TEXT,
  exit_code INTEGER,
  pid INTEGER,
  start_ticks INTEGER,
  boot_id TEXT,
  log_offset INTEGER,
  log_length INTEGER,
  reserved_at INTEGER NOT NULL,
  started_at INTEGER,
  ended_at INTEGER,
  input_tokens INTEGER,
  output_tokens INTEGER,
  cost_usd REAL,
  error TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (run_seq, step, unit, number),
  CHECK ((state IN ('completed', 'failed', 'aborted', 'lost')) = (ended_at IS NOT NULL)),
  CHECK (state <> 'started' OR (pid IS NOT NULL AND started_at IS NOT NULL)),
  CHECK (state <> 'completed' OR reason IS NULL),
  CHECK (state <> 'failed' OR reason IS NOT NULL),
  CHECK ((pid IS NULL) = (start_ticks IS NULL) AND (pid IS NULL) = (boot_id IS NULL)),
  CHECK ((log_offset IS NULL) = (log_length IS NULL))
) STRICT, WITHOUT ROWID;

-- Numbered per run: one run's history reads as one range, however many runs share the file.
CREATE TABLE event (
  run_seq INTEGER NOT NULL REFERENCES run (seq),
  id INTEGER NOT NULL CHECK (id >= 1),
  at INTEGER NOT NULL,
  type TEXT NOT NULL,
  step INTEGER,
  unit INTEGER,
  data TEXT NOT NULL,
  PRIMARY KEY (run_seq, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE request (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run_seq INTEGER NOT NULL REFERENCES run (seq),
  kind TEXT NOT NULL CHECK (kind IN ('abandon', 'resolve', 'raise', 'approve', 'reject', 'stop')),
  payload_json BLOB NOT NULL,
  made_at INTEGER NOT NULL,
  made_by TEXT NOT NULL,
  outcome TEXT,
  applied_at INTEGER,
  CHECK ((outcome IS NULL) = (applied_at IS NULL))
) STRICT;

CREATE INDEX request_run ON request (run_seq);

CREATE TABLE budget_raise (
  run_seq INTEGER NOT NULL REFERENCES run (seq),
  name TEXT NOT NULL CHECK (name IN ('max_units', 'max_tokens', 'max_cost_usd', 'max_duration_ms')),
  value REAL NOT NULL CHECK (value >= 0),
  PRIMARY KEY (run_seq, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE accepted_hash (
  run_seq INTEGER NOT NULL REFERENCES run (seq),
  name TEXT NOT NULL,
  hash TEXT NOT NULL,
  PRIMARY KEY (run_seq, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE notice (
  run_seq INTEGER NOT NULL REFERENCES run (seq),
  code TEXT NOT NULL,
  PRIMARY KEY (run_seq, code)
) STRICT, WITHOUT ROWID;
