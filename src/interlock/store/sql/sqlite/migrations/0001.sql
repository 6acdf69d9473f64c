-- Journal format 1. Keys are small sequential integers; names and hashes are plain columns, never keys.
-- One CHECK per table ties each state to what must be set in it, so no writer, ours or a stranger's, can store
-- nonsense. It is a CASE, since SQLite builds a table for every `IN` of more than two values on each row it checks;
-- ELSE 0 matters: a CHECK that is NULL passes.

CREATE TABLE run (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, -- never reused: a deleted run's number must not name another run
  id TEXT NOT NULL UNIQUE CHECK (id <> ''),
  workflow TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT,
  detail TEXT NOT NULL DEFAULT '',
  outcome TEXT CHECK (outcome IN ('ok', 'degraded', 'failed', 'abandoned')),
  wait_until INTEGER,
  key TEXT,
  parent TEXT, -- of a child run: the run that it is a unit of,
  parent_unit TEXT, -- that unit's id without round and loop,
  root TEXT, -- and the run that has no parent, whose lease is its own
  forked_from TEXT, -- the run whose completed units it may take over
  fork_step INTEGER NOT NULL DEFAULT 0 CHECK (fork_step >= 0), -- the steps before it are taken as they are
  plan_hash TEXT NOT NULL,
  params_hash TEXT NOT NULL,
  params_json BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  ended_at INTEGER,
  driven_ms INTEGER NOT NULL DEFAULT 0 CHECK (driven_ms >= 0),
  CHECK ((parent IS NULL) = (parent_unit IS NULL) AND (parent IS NULL) = (root IS NULL)),
  CHECK (
    CASE state
      WHEN 'active' THEN ended_at IS NULL AND wait_until IS NULL AND outcome IS NULL
      WHEN 'waiting' THEN ended_at IS NULL AND wait_until IS NOT NULL AND outcome IS NULL
      WHEN 'blocked' THEN ended_at IS NULL AND wait_until IS NULL AND outcome IS NULL AND reason IS NOT NULL
      WHEN 'completed' THEN ended_at IS NOT NULL AND wait_until IS NULL AND coalesce(outcome IN ('ok', 'degraded'), 0)
      WHEN 'failed' THEN ended_at IS NOT NULL AND wait_until IS NULL AND reason IS NOT NULL
      WHEN 'abandoned' THEN ended_at IS NOT NULL AND wait_until IS NULL
      ELSE 0
    END
  )
) STRICT;

CREATE UNIQUE INDEX run_key ON run (key, plan_hash, params_hash) WHERE key IS NOT NULL;

CREATE UNIQUE INDEX run_child ON run (parent, parent_unit) WHERE parent IS NOT NULL;

CREATE INDEX run_forked ON run (forked_from) WHERE forked_from IS NOT NULL;

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
  state TEXT NOT NULL DEFAULT 'pending',
  reason TEXT,
  detail TEXT NOT NULL DEFAULT '',
  round INTEGER NOT NULL DEFAULT 1 CHECK (round >= 1),
  loop INTEGER NOT NULL DEFAULT 1 CHECK (loop >= 1),
  stages TEXT NOT NULL CHECK (
    stages IN ('', 'check', 'judge', 'approval', 'check judge', 'check approval', 'judge approval', 'check judge approval')
  ), -- of its gate, in the order in which they are asked
  each_item INTEGER NOT NULL CHECK (each_item IN (0, 1)), -- what passes the gate: each item's result, else the artifact
  child INTEGER NOT NULL CHECK (child IN (0, 1)), -- its work units are runs of their own, which count what they dispatch
  artifact_hash TEXT,
  artifact_size INTEGER,
  route TEXT NOT NULL DEFAULT '[]',
  started_at INTEGER,
  ended_at INTEGER,
  artifact BLOB, -- NULL with a size: the content lies in a file named by the hash
  PRIMARY KEY (run_seq, step),
  CHECK (
    CASE state
      WHEN 'pending' THEN ended_at IS NULL AND artifact_hash IS NULL
      WHEN 'running' THEN ended_at IS NULL AND artifact_hash IS NULL AND started_at IS NOT NULL
      WHEN 'gating' THEN ended_at IS NULL AND artifact_hash IS NULL AND started_at IS NOT NULL
      WHEN 'waiting' THEN ended_at IS NULL AND artifact_hash IS NULL
      WHEN 'blocked' THEN ended_at IS NULL AND artifact_hash IS NULL AND reason IS NOT NULL
      WHEN 'completed' THEN ended_at IS NOT NULL
      WHEN 'failed' THEN ended_at IS NOT NULL AND artifact_hash IS NULL AND reason IS NOT NULL
      WHEN 'skipped' THEN ended_at IS NOT NULL AND artifact_hash IS NULL
      ELSE 0
    END
  ),
  CHECK (artifact_size IS NULL OR artifact_hash IS NOT NULL),
  CHECK (artifact IS NULL OR (artifact_size IS NOT NULL AND artifact_size = length(artifact)))
) STRICT, WITHOUT ROWID;

-- `counted` marks the work units that the census looks at: the last round and loop of each item.
CREATE TABLE unit (
  run_seq INTEGER NOT NULL REFERENCES run (seq),
  step INTEGER NOT NULL,
  ordinal INTEGER NOT NULL CHECK (ordinal >= 0),
  state TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (
    kind = 'work' OR kind = 'gate' OR kind = 'judge' OR kind = 'approval' OR kind = 'probe' OR kind = 'merge'
  ),
  counted INTEGER NOT NULL CHECK (counted = 0 OR (counted = 1 AND kind = 'work')),
  round INTEGER NOT NULL CHECK (round >= 1),
  loop INTEGER NOT NULL CHECK (loop >= 1),
  idx INTEGER,
  attempt INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
  retries INTEGER NOT NULL DEFAULT 0 CHECK (retries >= 0),
  asks INTEGER NOT NULL DEFAULT 0 CHECK (asks >= 0),
  not_before INTEGER,
  reason TEXT,
  verdict TEXT CHECK (verdict = 'pass' OR verdict = 'reject'),
  started_at INTEGER,
  ended_at INTEGER,
  id TEXT NOT NULL,
  subject TEXT,
  input_hash TEXT NOT NULL,
  dispatch TEXT,
  session TEXT,
  base TEXT, -- the commit that its worktrees begin at
  left_at TEXT, -- the commit that its last worktree was left at
  worktree TEXT,
  reused TEXT, -- of a fork: [run, unit, attempt] that it was taken over from
  error TEXT NOT NULL DEFAULT '',
  feedback BLOB,
  item BLOB,
  result BLOB,
  PRIMARY KEY (run_seq, step, ordinal),
  CHECK (
    CASE state
      WHEN 'pending' THEN ended_at IS NULL AND not_before IS NULL AND result IS NULL AND verdict IS NULL
      WHEN 'running' THEN ended_at IS NULL AND not_before IS NULL AND result IS NULL AND verdict IS NULL
        AND attempt > 0 AND dispatch IS NOT NULL
      WHEN 'waiting' THEN ended_at IS NULL AND not_before IS NOT NULL AND result IS NULL AND verdict IS NULL
        AND attempt > 0 AND reason IS NOT NULL
      WHEN 'unknown' THEN ended_at IS NULL AND not_before IS NULL AND result IS NULL AND verdict IS NULL AND attempt > 0
      WHEN 'completed' THEN ended_at IS NOT NULL AND not_before IS NULL
      WHEN 'failed' THEN ended_at IS NOT NULL AND not_before IS NULL AND result IS NULL AND verdict IS NULL
        AND reason IS NOT NULL
      WHEN 'not_run' THEN ended_at IS NOT NULL AND not_before IS NULL AND result IS NULL AND verdict IS NULL
        AND reason IS NOT NULL
      ELSE 0
    END
  ),
  CHECK (verdict IS NULL OR (kind <> 'work' AND subject IS NOT NULL)),
  CHECK (reused IS NULL OR (attempt = 0 AND ended_at IS NOT NULL AND kind <> 'approval' AND kind <> 'probe'))
) STRICT, WITHOUT ROWID;

-- What forks took over, which most runs have none of.
CREATE INDEX unit_reused ON unit (run_seq, step, counted) WHERE reused IS NOT NULL;

-- Covers the census whole, and finds the few running units (whose attempts are open) among many.
CREATE INDEX unit_census ON unit (run_seq, step, state, reason, counted);

CREATE TABLE attempt (
  run_seq INTEGER NOT NULL REFERENCES run (seq),
  step INTEGER NOT NULL,
  unit INTEGER NOT NULL,
  number INTEGER NOT NULL CHECK (number >= 1),
  state TEXT NOT NULL,
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
  engine TEXT,
  model TEXT, -- as asked for
  reserve_tokens INTEGER NOT NULL DEFAULT 0 CHECK (reserve_tokens >= 0),
  answered_model TEXT,
  session TEXT,
  request_id TEXT,
  input_tokens INTEGER CHECK (input_tokens >= 0),
  output_tokens INTEGER CHECK (output_tokens >= 0),
  cached_tokens INTEGER CHECK (cached_tokens >= 0),
  reasoning_tokens INTEGER CHECK (reasoning_tokens >= 0),
  cost_usd REAL CHECK (cost_usd >= 0),
  estimated INTEGER NOT NULL DEFAULT 0 CHECK (estimated = 0 OR estimated = 1),
  worktree TEXT, -- as planned before it was made
  base TEXT, -- the commit that it began at; as asked for until that is known
  kept_ref TEXT,
  kept_commit TEXT,
  error TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (run_seq, step, unit, number),
  CHECK (
    CASE state
      WHEN 'reserved' THEN ended_at IS NULL
      WHEN 'started' THEN ended_at IS NULL AND started_at IS NOT NULL AND pid IS NOT NULL
      WHEN 'completed' THEN ended_at IS NOT NULL AND reason IS NULL
      WHEN 'failed' THEN ended_at IS NOT NULL AND reason IS NOT NULL
      WHEN 'aborted' THEN ended_at IS NOT NULL
      WHEN 'lost' THEN ended_at IS NOT NULL
      ELSE 0
    END
  ),
  CHECK ((pid IS NULL) = (start_ticks IS NULL) AND (pid IS NULL) = (boot_id IS NULL)),
  CHECK ((log_offset IS NULL) = (log_length IS NULL)),
  CHECK ((worktree IS NULL) = (base IS NULL) AND (kept_ref IS NULL) = (kept_commit IS NULL))
) STRICT, WITHOUT ROWID;

-- What engines were seen to use, latest first; attempts of commands and functions are not in it.
CREATE INDEX attempt_engine ON attempt (ended_at) WHERE engine IS NOT NULL;

-- Attempts that had a worktree; all others are not in it.
CREATE INDEX attempt_worktree ON attempt (run_seq) WHERE worktree IS NOT NULL;

-- A person's verdict on an approval unit, for the artifact or result of that hash only.
CREATE TABLE approval (
  run_seq INTEGER NOT NULL REFERENCES run (seq),
  step INTEGER NOT NULL,
  unit INTEGER NOT NULL,
  at INTEGER NOT NULL,
  made_by TEXT NOT NULL CHECK (made_by <> ''),
  verdict TEXT NOT NULL CHECK (verdict IN ('pass', 'reject')),
  subject TEXT NOT NULL CHECK (subject <> ''),
  override INTEGER NOT NULL CHECK (override IN (0, 1)),
  note TEXT NOT NULL,
  PRIMARY KEY (run_seq, step, unit)
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
  kind TEXT NOT NULL CHECK (kind IN ('abandon', 'resolve', 'raise', 'approve', 'reject', 'loops')),
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

CREATE TABLE granted_loops (
  run_seq INTEGER NOT NULL REFERENCES run (seq),
  step INTEGER NOT NULL,
  loops INTEGER NOT NULL CHECK (loops > 0),
  PRIMARY KEY (run_seq, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE parked (
  run_seq INTEGER NOT NULL REFERENCES run (seq),
  engine TEXT NOT NULL CHECK (engine <> ''),
  until INTEGER, -- NULL: nobody knows
  PRIMARY KEY (run_seq, engine)
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
