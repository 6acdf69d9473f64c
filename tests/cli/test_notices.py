"""What a run tells of its file before it begins is told by `lint` and `plan` already, and by the run once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
FLOW = """---
defaults: { llm: { context_length: 5 } }
steps:
  - { id: a, engine: own, temperature: 1 }
  - { id: b, run: [no-such-program-anywhere] }
---
## a
Say it.
"""
CONFIG = '[engines.own]\nkind = "agent"\nagent = "command"\ncommand = ["cat"]\n'
IGNORED = "'llm.context_length' has no counterpart here and is ignored"
IDLE = "'temperature' does nothing: engine 'own' (command) is an agent, which takes none from outside"
PROGRAM = "program 'no-such-program-anywhere' was not found on PATH"
SHOWN = [f"flow.md:2:20: notice: {IGNORED}", f"flow.md:4:40: notice: {IDLE}", f"flow.md:5:19: warning: {PROGRAM}"]


@pytest.fixture
def call(tmp_path: Path, interlock: Interlock) -> Callable[..., subprocess.CompletedProcess[str]]:
    (tmp_path / "flow.md").write_text(FLOW, encoding="utf-8")
    (tmp_path / "interlock.toml").write_text(CONFIG, encoding="utf-8")
    return lambda *args: interlock(*args, cwd=tmp_path)


def found_in(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("flow.md:")]


def test_lint_shows_and_counts_notices_which_are_no_faults(call: Interlock) -> None:
    done = call("lint", "flow.md")
    assert (done.returncode, found_in(done.stdout)) == (0, SHOWN)
    assert done.stderr == "0 errors, 1 warning, 2 notices\n"


def test_lint_gives_notices_in_json_with_their_severity(call: Interlock) -> None:
    assert json.loads(call("lint", "flow.md", "--json").stdout)[0] == {
        "file": "flow.md",
        "line": 2,
        "column": 20,
        "severity": "notice",
        "code": "notice",
        "message": IGNORED,
        "hint": "",
    }


def test_a_file_with_notices_alone_has_no_faults(call: Interlock, tmp_path: Path) -> None:
    (tmp_path / "flow.md").write_text(FLOW.replace("no-such-program-anywhere", "echo"), encoding="utf-8")
    done = call("lint", "flow.md")
    assert (done.returncode, done.stderr) == (0, "no faults found, 2 notices\n")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_plan_shows_notices_and_warnings_beside_what_it_prints(call: Interlock, options: tuple[str, ...]) -> None:
    done = call("plan", "flow.md", *options)
    assert (done.returncode, found_in(done.stderr), found_in(done.stdout)) == (0, SHOWN, [])


def test_run_tells_a_notice_once(call: Interlock) -> None:
    done = call("run", "flow.md")
    told = done.stdout + done.stderr
    assert [told.count(text) for text in (IGNORED, IDLE, PROGRAM)] == [1, 1, 1]
    assert f"notice: line 2: {IGNORED}" in told
