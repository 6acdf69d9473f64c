"""Runs that ask engines, by the program as a process of its own: exit codes, and the way out that status names."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]

FLOW = """---
steps:
  - id: draft
    gate: { max_loops: 2 }
---
## draft
Write.
### gate
It names the version.
"""
CONFIG = """[run]
engine = "writer"
judge = "critic"
[engines.writer]
kind = "agent"
agent = "command"
command = ["python3", "writer.py"]
output = "json"
[engines.critic]
kind = "agent"
agent = "command"
command = ["python3", "critic.py"]
"""
NO = """print('{"complete": false, "missing": ["version"], "feedback": "name it"}')"""
YES = """print('{"complete": true}')"""


@pytest.fixture
def drive(tmp_path: Path, interlock: Call) -> Call:
    """The program in a project of a writer and a critic; what they answer may be changed at any time."""
    (tmp_path / "flow.md").write_text(FLOW, encoding="utf-8")
    (tmp_path / "interlock.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "writer.py").write_text(
        """print('{"text": "text", "session": "s-1", "usage": {"input_tokens": 10, "output_tokens": 2, "cost_usd": 0.5}}')""",
        encoding="utf-8",
    )

    def call(*arguments: str, critic: str | None = None, writer: str | None = None) -> subprocess.CompletedProcess[str]:
        for name, text in (("critic", critic), ("writer", writer)):
            if text is not None:
                (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        return interlock(*arguments, cwd=tmp_path)

    return call


def follow(drive: Call, told: str, verb: str) -> subprocess.CompletedProcess[str]:
    """Type the first command of that verb that was offered."""
    line = next(line for line in told.splitlines() if f"interlock {verb} " in line)
    words = shlex.split(line, comments=True)
    return drive(*words[words.index("interlock") + 1 :])


def test_a_prompt_that_its_judge_passes_completes_with_what_it_used(drive: Call) -> None:
    done = drive("run", "flow.md", critic=YES)
    assert (done.returncode, done.stderr) == (0, "")
    assert "at least $0.50 (the cost of 1 answer is unknown)\n" in done.stdout
    (unit,) = json.loads(drive("units", "last", "--json").stdout)
    assert (unit["engine"], unit["tokens"], unit["cost_usd"], unit["session"]) == ("writer", 12, 0.5, "s-1")


def test_a_prompt_that_its_judge_never_passes_ends_with_exit_3(drive: Call) -> None:
    done = drive("run", "flow.md", critic=NO)
    assert done.returncode == 3
    assert "step draft started (loop 2 of 2), told: name it\n" in done.stdout
    assert "  missing: version\n" in done.stdout


def test_a_rejected_prompt_goes_on_as_status_says(drive: Call) -> None:
    drive("run", "flow.md", critic=NO)
    told = drive("status").stdout
    again = follow(drive, told, "resume")
    assert again.returncode == 3
    assert "step draft started (loop 3 of 3), told: name it\n" in again.stdout
    assert follow(drive, told, "reject").returncode == 0
    noted = drive("run", "last")
    assert noted.returncode == 3
    assert "told: ...\n" in noted.stdout
    assert follow(drive, told, "approve").returncode == 0
    assert drive("run", "last").returncode == 0
    assert "overruled by " in drive("status").stdout


def test_a_judge_that_gives_no_verdict_blocks_and_is_asked_again_alone(drive: Call) -> None:
    done = drive("run", "flow.md", critic="print('perhaps')")
    assert done.returncode == 3
    assert "blocked (judge_unavailable)" in done.stdout
    again = drive("run", "last", critic=YES)
    assert again.returncode == 0, again.stdout
    assert "step draft started" not in again.stdout
    assert json.loads(drive("status", "--json").stdout)["usage"]["units"] == 1


def test_a_used_up_quota_makes_the_run_wait_with_exit_75(drive: Call) -> None:
    used_up = """print('{"error": "usage limit reached; resets at 2100-01-01T00:00:00Z"}')"""
    done = drive("run", "flow.md", writer=used_up)
    assert done.returncode == 75
    assert "engine writer has no quota until " in done.stdout
    assert "\n  due " in done.stdout
    assert "--wait  # sleep until it is due, then go on\n" in done.stdout
    told = drive("status").stdout
    assert "state    waiting (llm_quota)\n" in told
    assert "\nuntil    " in told
    assert json.loads(drive("status", "--json").stdout)["usage"]["cost_usd"] is None


def test_waiting_for_a_quota_ends_with_the_time_limit_and_goes_on_by_itself_when_it_is_due(
    drive: Call, tmp_path: Path
) -> None:
    used_up = """import datetime, pathlib
asked = pathlib.Path("asked")
if asked.exists():
    print('{"text": "text"}')
else:
    asked.touch()
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=%s)
    print('{"error": "usage limit reached; resets at ' + at.strftime("%%Y-%%m-%%dT%%H:%%M:%%SZ") + '"}')
"""
    limited = drive("run", "flow.md", "--wait", "--timeout", "2s", writer=used_up % 86_400, critic=YES)
    assert limited.returncode == 75
    (tmp_path / "asked").unlink()
    assert drive("run", "flow.md", "--wait", writer=used_up % 4).returncode == 0


def test_the_next_estimate_knows_what_was_used_before(drive: Call) -> None:
    drive("run", "flow.md", critic=YES)
    told = drive("plan", "flow.md").stdout.partition("estimate:\n")[2]
    assert told.splitlines()[0] == "  draft          writer: 1 to 2 calls, 12 to 24 tokens, $0.50 to $1.00"
    assert drive("run", "flow.md", "--confirm-over", "5usd").returncode == 2


def test_answers_that_fitted_only_when_asked_again_and_placeholders_are_counted(drive: Call, tmp_path: Path) -> None:
    flow = FLOW.replace("    gate:", "    output: { type: object, required: [why] }\n    gate:")
    writer = """import json, pathlib
asked = pathlib.Path("asked")
print(json.dumps({"text": json.dumps({"why": "because" if asked.exists() else "..."})}))
asked.touch()
"""
    drive("config", critic=YES, writer=writer)
    (tmp_path / "flow.md").write_text(flow, encoding="utf-8")
    done = drive("run", "flow.md")
    assert done.returncode == 0, done.stdout
    assert "; 1 answer only when asked again; 1 answer of placeholders\n" in done.stdout
    usage = json.loads(drive("status", "--json").stdout)["usage"]
    assert (usage["units"], usage["corrected"], usage["placeholders"]) == (2, 1, 1)
