"""What a person is told to type next moves the run on and names commands that exist."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.cli.program import COMMANDS
from interlock.views.advice import next_commands


@pytest.mark.parametrize(
    ("run", "step", "said"),
    [
        ({"state": "active"}, {}, ["interlock run 01JDRUN"]),
        ({"state": "waiting"}, {}, ["interlock run 01JDRUN --wait"]),
        ({"state": "abandoned"}, {}, ["interlock resume 01JDRUN"]),
        ({"state": "completed"}, {}, []),
        ({"state": "completed", "outcome": "degraded"}, {}, ["interlock units 01JDRUN --state failed"]),
        (
            {"state": "failed", "reason": "timeout"},
            {"state": "failed"},
            ["interlock resume 01JDRUN", "interlock units 01JDRUN --state failed"],
        ),
        (
            {"state": "failed", "reason": "budget_exceeded"},
            {"state": "failed", "reason": "budget_exceeded", "detail": "the ceiling max_duration was reached"},
            ["interlock resume 01JDRUN --raise max_duration=N", "interlock units 01JDRUN --state failed"],
        ),
        ({"state": "blocked"}, {"state": "blocked", "reason": "check_unavailable"}, ["interlock run 01JDRUN"]),
        ({"state": "blocked"}, {"state": "blocked", "reason": "gate_rejected"}, ["interlock resume 01JDRUN"]),
        (
            {"state": "blocked"},
            {"state": "blocked", "reason": "module_changed"},
            ["interlock resume 01JDRUN --accept-changes"],
        ),
    ],
)
def test_a_person_is_told_a_command_that_moves_the_run_on(
    rows: Any, run: dict[str, Any], step: dict[str, Any], said: list[str]
) -> None:
    given = next_commands(rows.run(**{"outcome": None, **run}), [rows.step(**step)])
    assert given == said
    assert all(command.split()[1] in COMMANDS for command in given)


def test_an_unknown_effect_asks_for_an_answer_before_anything_else(rows: Any) -> None:
    blocked = rows.run(state="blocked", reason="effect_unknown")
    assert next_commands(blocked, [rows.step(state="blocked")], ["one:solo"]) == [
        "interlock resolve 01JDRUN one:solo --done|--rerun"
    ]


def test_a_run_under_way_is_to_be_watched_not_driven(rows: Any) -> None:
    assert next_commands(rows.run(state="active"), [], live=True) == ["interlock events 01JDRUN --follow"]
