"""A configuration in which every table is used."""

from __future__ import annotations

WHOLE = b"""
[run]
engine = "coder"
judge = "fast"
max_concurrency = 8
journal = "sqlite"
executor = "local"
python = ".venv/bin/python"
timeout = "90s"
idle_timeout = "none"

[engines.fast]
kind = "llm"
api = "openai"
base_url = "http://127.0.0.1:8080/v1"
model = "small-1"
api_key = "$FAST_KEY"
concurrency = 4

[engines.coder]
kind = "agent"
agent = "claude"
model = "deep"
args = []
env = ["staging"]

[models.deep]
claude = "claude-opus-5"
"*" = "big-1"

[env.staging]
vars = ["DEPLOY_REGION"]
dotenv = [".env.staging"]
secrets = { DEPLOY_TOKEN = { command = ["pass", "show", "deploy"] }, API_KEY = { var = "STAGING_API_KEY" } }

[limits]
max_result_bytes = 2048
"""
