"""Faults at what a gate asks: a check or a judge that gives no verdict never passes, whatever was recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from interlock.app import App, open_project
from interlock.errors import UsageError

_VERDICT: Final = '{"complete": true, "missing": [], "feedback": ""}'
_FLOW: Final = """---
steps:
  - id: list
    run: echo '["a", "b"]'
    output: { type: array }
  - id: say
    gate: { check: 'true', judges: 3 }
  - id: each
    map: { over: steps.list.output }
    run: echo "$INTERLOCK_ITEM"
    gate: { check: 'true', each: true }
---
## say
Say it.
### gate
Good?
"""


@pytest.fixture
def app(tmp_path: Path) -> App:
    (tmp_path / "interlock.toml").write_text(
        '[run]\nengine = "bot"\njudge = "bot"\n[engines.bot]\nkind = "agent"\nagent = "command"\n'
        'command = ["sh", "bot.sh"]\n'
    )
    (tmp_path / "bot.sh").write_text(f"case \"$(cat)\" in *Good*) echo '{_VERDICT}';; *) echo said;; esac\n")
    (tmp_path / "flow.md").write_text(_FLOW)
    with open_project(tmp_path) as app:
        app.run_file(tmp_path / "flow.md")
        return app


@pytest.mark.parametrize(
    ("fault", "step", "item"),
    [
        ("timeout@say.check", "say", None),
        ("killed@each.check:2", "each", b'"b"'),
        ("spawn_failed@each.check:b", "each", b'"b"'),
    ],
)
def test_a_check_that_fails_blocks_the_run_and_passes_nothing(
    app: App, fault: str, step: str, item: bytes | None
) -> None:
    with app:
        found = app.replay(app.find("last"), faults=[fault])
        (struck,) = [unit for unit in found.units if unit.id in found.faulted]
        assert (struck.id.partition(".gate")[0], struck.kind, struck.item) == (step, "gate", item)
        assert (found.state, found.reason, found.exit_code) == ("blocked", "check_unavailable", 3)
        assert [one.state for one in found.steps if one.id == step] == ["blocked"]


def test_one_judge_of_three_that_fails_leaves_a_majority_and_two_do_not(app: App) -> None:
    with app:
        run = app.find("last")
        one = app.replay(run, faults=["timeout@say.judge:2"])
        assert (one.state, one.faulted) == ("completed", {"say.gate:l1.j2": "timeout@say.judge:2"})
        two = app.replay(run, faults=["timeout@say.judge", "network_error@say.judge:3"])
        assert (two.state, two.reason, two.exit_code) == ("blocked", "judge_unavailable", 3)


def test_a_judge_whose_answer_could_not_be_read_is_asked_once_more(app: App) -> None:
    with app:
        found = app.replay(app.find("last"), faults=["parse_error@say.judge"])
        unit = next(unit for unit in found.units if unit.id == "say.gate:l1.j1")
        assert (found.state, unit.attempt, unit.asks) == ("completed", 2, 1)


def test_a_fault_at_a_gate_strikes_no_work_and_one_at_work_no_gate(app: App) -> None:
    with app:
        run = app.find("last")
        assert set(app.replay(run, faults=["timeout@each:b"]).faulted) & {"each.gate:l1"} == set()
        found = app.replay(run, faults=["timeout@say:2"])
        assert found.faults_unused == {"timeout@say:2": "'say' had 1 dispatch"}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("timeout@list.check", "step 'list' has no 'check' that could fail"),
        ("timeout@each.judge", "step 'each' has no 'judge' that could fail"),
        ("timeout@say.gate", "step 'say' has no 'gate' that could fail"),
        ("timeout@say.", "step 'say' has no '' that could fail"),
    ],
)
def test_a_gate_that_is_not_there_is_refused(app: App, fault: str, said: str) -> None:
    with app, pytest.raises(UsageError) as raised:
        app.replay(app.find("last"), faults=[fault])
    assert raised.value.message == said
    assert raised.value.hint.startswith("use '")


def test_what_a_gate_asks_is_named_in_the_hint(app: App) -> None:
    with app, pytest.raises(UsageError) as raised:
        app.replay(app.find("last"), faults=["timeout@say.jugde"])
    assert raised.value.hint == "use 'say', 'say.check' or 'say.judge'"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("timeout@each:9", "'each' had 2 dispatches"),
        ("timeout@each:c", '\'each\' was not asked about that item, but about "a", "b"'),
        ("timeout@each.check:c", '\'each.check\' was not asked about that item, but about "a", "b"'),
        ("timeout@say:c", "'say' has no items"),
        ("timeout@say.judge:4", "'say.judge' had 3 dispatches"),
        (b"timeout@each:\xff", '\'each\' was not asked about that item, but about "a", "b"'),
    ],
)
def test_a_fault_that_meets_nothing_is_an_error_that_says_why(app: App, fault: str | bytes, why: str) -> None:
    app.close()
    command = [sys.executable, "-m", "interlock", "replay", "last", "--fault", fault]
    shown = fault if isinstance(fault, str) else fault.decode("ascii", "replace").replace("\ufffd", "?")
    for more in ([], ["--json"]):
        done = subprocess.run(
            [*command, *more], cwd=app.project.root, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 1
        assert done.stderr == (
            f"error: no dispatch met the fault {shown}: {why}\n"
            "hint: the replay shows what was dispatched; name a fault that fits\n"
        )
    assert json.loads(done.stdout)["faults_unused"] == [shown]


def test_a_fault_behind_another_that_ended_the_run_is_said_to_have_met_nothing(app: App) -> None:
    with app:
        found = app.replay(app.find("last"), faults=["timeout@say", "timeout@each"])
        assert found.faults_unused == {"timeout@each": "nothing was dispatched at 'each'"}
