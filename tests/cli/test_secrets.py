"""No value of an env group or of an engine's key is left on disk or shown, whoever said it and however it was spelled."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

VALUE = 'pass/word "of" the vault'
KEY = "key-of-the-writer-0001"
CONFIG = """[run]
engine = "writer"
judge = "critic"
[env.vault]
vars = ["VAULT_WORD"]
[engines.writer]
kind = "agent"
agent = "command"
command = ["python3", "say.py"]
api_key = "$WRITER_KEY"
env = ["vault"]
[engines.critic]
kind = "agent"
agent = "command"
command = ["python3", "critic.py"]
api_key = "$WRITER_KEY"
"""
FLOW = """---
steps:
  - { id: shell, run: python3 say.py, env: [vault] }
  - { id: bad, run: python3 say.py && exit 3, env: [vault], on_error: continue }
  - { id: function, uses: 'python:work:tell', env: [vault] }
  - id: prompt
    inputs: [steps.shell.output, steps.function.output]
  - id: after
    map: { over: params.items }
    run: cat "$INTERLOCK_CONTEXT"
    inputs: [steps.prompt.output]
    gate: { check: 'python3 say.py; exit 1' }
    env: [vault]
params: { items: { type: array, default: [1] } }
---
## prompt
Write.
### gate
Good.
"""
SAY = """import base64, json, os, sys, urllib.parse
def said():
    out = []
    for name in ("VAULT_WORD", "WRITER_KEY"):
        text = os.environ.get(name, "")
        out += [text, json.dumps(text), urllib.parse.quote(text), base64.b64encode(text.encode()).decode()]
    return " ".join(out)
if __name__ == "__main__":
    print(said(), sys.stdin.read())
    print(said(), file=sys.stderr)
"""
WORK = """import say
def tell(context):
    print(say.said())
    return {"said": [say.said()]}
"""
CRITIC = """import json, os, sys
print(json.dumps({"complete": True, "feedback": os.environ["WRITER_KEY"] + sys.stdin.read()}))
"""


def test_no_value_is_left_in_the_journal_a_log_an_event_or_what_is_shown(
    interlock: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "interlock.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "flow.md").write_text(FLOW, encoding="utf-8")
    (tmp_path / "say.py").write_text(SAY, encoding="utf-8")
    (tmp_path / "critic.py").write_text(CRITIC, encoding="utf-8")
    (tmp_path / "work.py").write_text(WORK, encoding="utf-8")
    secrets = {"VAULT_WORD": VALUE, "WRITER_KEY": KEY}
    done = interlock("run", "flow.md", cwd=tmp_path, **secrets)
    assert done.returncode == 3, done.stdout + done.stderr
    ways = [
        (command, "last", *how)
        for command in ("status", "units", "logs", "events", "plan")
        for how in ((), ("--json",))
    ]
    shown = [done.stdout, done.stderr, *(interlock(*way, cwd=tmp_path).stdout for way in ways)]
    kept = b"".join(path.read_bytes() for path in (tmp_path / ".interlock").rglob("*") if path.is_file())
    everything = kept + "".join(shown).encode()
    for name, value in secrets.items():
        assert f"[redacted:{name}]".encode() in kept
        spelled = base64.b64encode(value.encode()).decode()[:-4]
        for text in (value, json.dumps(value)[1:-1], quote(value), spelled):
            assert text.encode() not in everything


def test_params_that_look_like_secrets_are_shown_nowhere(
    interlock: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "flow.md").write_text(
        "---\nparams:\n"
        "  api_tokens: { type: array, items: { type: string } }\n"
        "  credentials: { type: object }\n  password: {}\n  cfg: { type: object }\n"
        "steps:\n"
        "  - { id: say, run: 'cat $INTERLOCK_CONTEXT; echo $INTERLOCK_PARAM_CREDENTIALS >&2' }\n"
        "  - { id: each, map: { over: params.api_tokens }, run: 'echo $INTERLOCK_ITEM; exit 1', on_error: continue }\n"
        "  - id: go\n    route: { input: params.password, when: [{ match: x, step: end }] }\n"
        "  - { id: end, run: 'true' }\n"
        "---\n",
        encoding="utf-8",
    )
    given = {
        "api_tokens": ["first-secret", "second-secret"],
        "credentials": {"deep": "third-secret", "pin": 987654321},
        "password": "fourth-secret",
        "cfg": {"host": "db.example", "logins": [{"user": "ann", "password": "fifth-secret"}]},
    }
    (tmp_path / "params.json").write_text(json.dumps(given), encoding="utf-8")
    said = interlock("run", "flow.md", "--params-file", "params.json", cwd=tmp_path)
    shown = said.stdout + said.stderr
    for command in ("status", "units", "logs", "events", "plan"):
        shown += (
            interlock(command, "last", cwd=tmp_path).stdout + interlock(command, "last", "--json", cwd=tmp_path).stdout
        )
    assert [
        secret for secret in ("first-", "second-", "third-", "fourth-", "fifth-", "987654321") if secret in shown
    ] == []
    assert "[redacted:api_tokens]" in shown
    assert "[redacted:cfg.logins.password]" in shown
    assert "db.example" in shown
    assert "params.password is a string of 13 characters, which no `match` names" in shown
