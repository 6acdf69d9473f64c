"""What the commands that act say of what they did: what, to which run, where it stands now, and what comes next."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.cli.program import COMMANDS

Interlock = Callable[..., Any]
FLOW = "---\nsteps:\n  - { id: held, run: echo x, gate: { approval: true } }\n---\n"
EFFECT = (
    "---\nsteps:\n  - { id: pay, run: sleep 60, timeout: 100ms, effects: external, output: { type: object } }\n---\n"
)


def flags(command: Any) -> set[str]:
    return {flag for param in command.params for flag in param.opts}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "completion"])
def test_every_command_can_answer_in_json(name: str) -> None:
    command: Any = importlib.import_module(f"interlock.cli.commands.{name}").command
    below = getattr(command, "commands", {}).values()
    assert all("--json" in flags(one) for one in (below or [command]))


@pytest.mark.parametrize(
    ("arguments", "did", "state", "reason", "more", "then"),
    [
        (("approve", "last"), "approved", "active", "a person answered", {"target": None}, "run"),
        (("reject", "last", "held"), "rejected", "active", "a person answered", {"target": "held"}, "run"),
        (("abandon", "last"), "abandoned", "abandoned", "abandoned", {}, "resume"),
    ],
)
def test_what_was_done_to_a_run_is_one_object(
    tmp_path: Path, interlock: Interlock, arguments: Any, did: str, state: str, reason: str, more: Any, then: str
) -> None:
    (tmp_path / "flow.md").write_text(FLOW, encoding="utf-8")
    run = interlock("run", "flow.md", cwd=tmp_path).stdout.split()[1]
    done = interlock(*arguments, "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "schema": 1,
        "did": did,
        "run": run,
        "state": state,
        "reason": reason,
        **more,
        "next": [{"command": f"interlock {then} {run}", "why": ""}],
    }


def test_an_answer_for_an_unknown_effect_says_what_comes_next(tmp_path: Path, interlock: Interlock) -> None:
    (tmp_path / "flow.md").write_text(EFFECT, encoding="utf-8")
    told = interlock("run", "flow.md", cwd=tmp_path).stdout
    run = told.split()[1]
    done = "# if it took place, with the result that the step's schema asks for"
    assert f"  next: interlock resolve {run} pay:solo --done --result JSON  {done}\n" in told
    again = interlock("resolve", run, "pay:solo", "--rerun", "--json", cwd=tmp_path)
    assert json.loads(again.stdout) == {
        "schema": 1,
        "did": "resolved",
        "run": run,
        "state": "active",
        "reason": "resolved",
        "unit": "pay:solo",
        "done": False,
        "next": [{"command": f"interlock run {run}", "why": ""}],
    }
    assert interlock("run", run, cwd=tmp_path).returncode == 4
    told = interlock("resolve", run, "pay:solo", "--done", "--result", "{}", cwd=tmp_path).stdout
    assert told == f"unit pay:solo: done\nnext: interlock run {run}\n"


def test_what_was_written_is_named(tmp_path: Path, interlock: Interlock) -> None:
    assert json.loads(interlock("new", "flow", "--json", cwd=tmp_path).stdout) == {
        "schema": 1,
        "did": "wrote",
        "path": "flow.md",
        "next": [{"command": "interlock run flow.md -p greeting=Hello", "why": ""}],
    }
    named = json.loads(interlock("schema", "--out", "schema.json", "--json", cwd=tmp_path).stdout)
    assert named == {"schema": 1, "did": "wrote", "path": "schema.json"}
    assert interlock("schema", "--json", cwd=tmp_path).stdout == (tmp_path / "schema.json").read_text(encoding="utf-8")
