"""Effects that a lost connection, a crash or a full disk leaves unknown, by the program as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.modelserver.fakellm import FakeLLM

Call = Callable[..., "subprocess.CompletedProcess[str]"]
BLOCKED = 4
INTERRUPTED = 130
PROMPT = """---
steps:
  - id: send
    effects: external
    retry: { max: 3, backoff: { initial: 10ms } }
---
# Flow
## send
Send it.
"""
CONFIG = """[run]
engine = "api"
[engines.api]
kind = "llm"
api = "openai"
model = "fake-model"
base_url = "{url}/v1"
api_key = "$API_KEY"
"""


@pytest.fixture
def server() -> FakeLLM:
    return FakeLLM()


@pytest.mark.parametrize("trouble", [{"cut": True, "text": "sent, as you asked"}, {"status": 502}, {"status": 504}])
def test_a_connection_lost_after_the_request_was_sent_leaves_the_effect_unknown(
    trouble: dict[str, object], server: FakeLLM, interlock: Call, tmp_path: Path
) -> None:
    (tmp_path / "flow.md").write_text(PROMPT, encoding="utf-8")
    with server:
        (tmp_path / "interlock.toml").write_text(CONFIG.format(url=server.url), encoding="utf-8")
        server.script({**trouble, "times": 1}, {"text": "sent"})

        def call(*arguments: str) -> subprocess.CompletedProcess[str]:
            return interlock(*arguments, cwd=tmp_path, API_KEY="key-of-the-test")

        for begun in (call("run", "flow.md"), call("run", "last"), call("resume", "last")):
            assert begun.returncode == BLOCKED, begun.stdout + begun.stderr
            assert len(server.log()) == 1, "asked again by itself"
        units = json.loads(call("units", "last", "--json").stdout)
        assert [(unit["state"], unit["attempt"]) for unit in units] == [("unknown", 1)]
        assert "interlock resolve" in call("status", "last").stdout
        assert call("resolve", "last", "send:solo", "--rerun").returncode == 0
        assert call("run", "last").returncode == 0
        assert len(server.log()) == 2


def test_what_was_answered_for_a_unit_stands_before_what_its_attempt_said(interlock: Call, tmp_path: Path) -> None:
    step = "{ id: send, effects: external, timeout: 200ms, run: sleep 60 }"
    (tmp_path / "flow.md").write_text(f"---\nsteps: [{step}]\n---\n", encoding="utf-8")
    assert interlock("run", "flow.md", cwd=tmp_path).returncode == BLOCKED
    assert "timed out after 200ms" in interlock("units", "last", cwd=tmp_path).stdout
    assert interlock("resolve", "last", "send:solo", "--done", "--result", '"sent"', cwd=tmp_path).returncode == 0
    shown = interlock("units", "last", cwd=tmp_path).stdout
    assert '"sent"' in shown
    assert "timed out" not in shown


FUNCTION = """---
steps:
  - id: send
    effects: external
    uses: python:work:send
    retry: { max: 3, backoff: { initial: 10ms } }
---
# Flow
"""
ENDS = {
    "a crash": ("import os; os._exit(0)", BLOCKED),
    "a signal": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", BLOCKED),
    "a result of no use": ("return {1}", 1),
    "a result that is too large": ("return 'x' * 2_000_000", 1),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_function_that_ends_without_a_usable_answer_is_never_repeated_by_itself(
    end: str, interlock: Call, tmp_path: Path
) -> None:
    body, code = ENDS[end]
    (tmp_path / "interlock.toml").touch()
    (tmp_path / "flow.md").write_text(FUNCTION, encoding="utf-8")
    text = f"def send(context):\n    open('outside', 'a').write('sent.')\n    {body}\n"
    (tmp_path / "work.py").write_text(text, encoding="utf-8")
    for arguments in (("run", "flow.md"), ("run", "last")):
        done = interlock(*arguments, cwd=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
        assert (tmp_path / "outside").read_text(encoding="utf-8") == "sent."


def test_an_answer_with_counts_that_cannot_be_is_taken_and_not_paid_for_again(
    server: FakeLLM, interlock: Call, tmp_path: Path
) -> None:
    (tmp_path / "flow.md").write_text(PROMPT, encoding="utf-8")
    with server:
        (tmp_path / "interlock.toml").write_text(CONFIG.format(url=server.url), encoding="utf-8")
        server.script({"text": "sent", "usage": {"in": 10**30, "out": 7}})
        done = interlock("run", "flow.md", cwd=tmp_path, API_KEY="key-of-the-test")
        assert done.returncode == 0, done.stderr
        assert len(server.log()) == 1
    [unit] = json.loads(interlock("units", "last", "--json", cwd=tmp_path).stdout)
    assert (unit["result"], unit["state"]) == ("sent", "completed")


@pytest.mark.parametrize("first", ["fx", "bad"])
def test_an_effect_beside_a_step_that_fails_each_time_can_be_answered_and_forked(
    first: str, interlock: Call, tmp_path: Path
) -> None:
    # each step ends only after the other has begun, and the one that is not `first` after the other has ended
    (tmp_path / "flow.md").write_text(
        f"""---
steps:
  - id: fx
    effects: external
    timeout: {"200ms" if first == "fx" else "2s"}
    run: sleep 60
  - id: bad
    needs: []
    run: {"until test -e over; do sleep 0.05; done; exit 1" if first == "fx" else "exit 1"}
---
""",
        encoding="utf-8",
    )
    if first == "fx":
        begun = interlock("run", "flow.md", "--timeout", "1s", cwd=tmp_path)
        assert begun.returncode == INTERRUPTED, begun.stdout + begun.stderr
        (tmp_path / "over").touch()
        ended = interlock("run", "last", cwd=tmp_path)
    else:
        ended = interlock("run", "flow.md", cwd=tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    words = [line.partition("#")[0].split() for line in ended.stdout.split("  next: ")[1].splitlines()]
    assert [line[1] for line in words] == ["resolve", "resolve", "resume", "units"]
    refused = interlock("fork", "last", cwd=tmp_path)
    assert refused.returncode == 2
    assert f"hint: say it first: {' '.join(words[0])} (or --rerun" in refused.stderr
    assert interlock(*words[0][1:], cwd=tmp_path).returncode == 0
    shown = interlock("units", "last", "--step", "fx", "--json", cwd=tmp_path).stdout
    assert [unit["state"] for unit in json.loads(shown)] == ["completed"]
    shown = interlock("status", "last", cwd=tmp_path).stdout
    assert "it is not known" not in shown
    answered = "answered; it goes on when the run is reopened"
    assert (answered in shown) is (first == "fx")
    view = json.loads(interlock("status", "last", "--json", cwd=tmp_path).stdout)
    assert (answered in [step["feedback"] for step in view["steps"]]) is (first == "fx")
    assert interlock("fork", "last", "--explain", cwd=tmp_path).returncode == 0
    (tmp_path / "flow.md").unlink()
    assert "fx:solo" not in interlock("resume", "last", cwd=tmp_path).stdout, "the effect was repeated"


def test_a_fork_of_a_run_that_is_at_an_effect_is_told_how_to_go_on_with_it_and_how_to_watch_it(
    interlock: Call, tmp_path: Path
) -> None:
    # the command asks for the fork of its own run, so that it is under way
    fork = f"{sys.executable} -c 'from interlock.cli.entry import main; main()' fork last"
    (tmp_path / "flow.md").write_text(
        f"---\nsteps:\n  - id: fx\n    effects: external\n    run: |\n      {fork} 2> refused || true\n---\n",
        encoding="utf-8",
    )
    done = interlock("run", "flow.md", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    name = done.stdout.split()[1]
    hint = f"interlock run {name} (while it is driven: interlock events {name} --follow)"
    assert f"hint: let that run come to its end: {hint}\n" in (tmp_path / "refused").read_text(encoding="utf-8")
