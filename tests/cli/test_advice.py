"""What a person is told to type next moves the run on and names commands that exist."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from interlock.cli.commands import resume
from interlock.cli.program import COMMANDS
from interlock.views.advice import Asked, Gate, Next, next_commands
from interlock.views.facts import PlanFacts, plan_facts

PROMPT = plan_facts(b'{"steps":[{"id":"one","target":{"type":"prompt","text":"x"}}]}')
COMMAND = plan_facts(b'{"steps":[{"id":"one","target":{"type":"command","argv":["x"]}}]}')
OVERRIDE = 'interlock approve 01JDRUN one --override --note "..."'
BLOCKED = {"state": "blocked", "outcome": None}


def commands(found: list[Next]) -> list[str]:
    """The commands alone, after a check that each exists with the options it is given."""
    for entry in found:
        _, name, *rest = entry.command.split()
        assert name in COMMANDS
        command = importlib.import_module(f"interlock.cli.commands.{name}").command
        known = {flag for param in command.params for flag in param.opts}
        flags = {flag for word in rest for flag in word.split("|") if re.match("--[a-z]", flag)}
        assert flags <= known
    return [entry.command for entry in found]


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
            ["interlock resume 01JDRUN", "interlock fork 01JDRUN", "interlock units 01JDRUN --state failed"],
        ),
        (
            {"state": "failed", "reason": "vote_failed"},
            {"state": "failed", "reason": "vote_failed", "detail": "a tie at the top: 2 votes each, of 5"},
            ["interlock fork 01JDRUN"],
        ),
        (
            {"state": "failed", "reason": "dispatch_error"},
            {"state": "failed", "reason": "dispatch_error", "started_at": None},
            ["interlock fork 01JDRUN"],
        ),
        (
            {"state": "failed", "reason": "dispatch_error"},
            {"state": "failed", "reason": "dispatch_error"},
            ["interlock resume 01JDRUN", "interlock fork 01JDRUN", "interlock units 01JDRUN --state failed"],
        ),
        (
            {"state": "failed", "reason": "budget_exceeded"},
            {"state": "failed", "reason": "budget_exceeded", "detail": "a detail of a later version"},
            ["interlock resume 01JDRUN --raise max_units=N", "interlock units 01JDRUN --state failed"],
        ),
        (
            {"state": "failed", "reason": "llm_auth"},
            {"state": "failed", "reason": "llm_auth"},
            [
                "interlock doctor",
                "interlock resume 01JDRUN",
                "interlock fork 01JDRUN",
                "interlock units 01JDRUN --state failed",
            ],
        ),
        (BLOCKED, {"state": "blocked", "reason": "check_unavailable"}, ["interlock run 01JDRUN", OVERRIDE]),
        (
            BLOCKED,
            {"state": "blocked", "reason": "judge_unavailable"},
            ["interlock run 01JDRUN", "interlock doctor", OVERRIDE],
        ),
        (BLOCKED, {"state": "waiting", "reason": "llm_quota"}, ["interlock run 01JDRUN"]),
        (
            BLOCKED,
            {"state": "blocked", "reason": "module_changed"},
            ["interlock resume 01JDRUN --accept-changes", "interlock run 01JDRUN"],
        ),
        (BLOCKED, {"state": "blocked", "reason": "a reason of a later version"}, ["interlock run 01JDRUN"]),
    ],
)
def test_a_person_is_told_a_command_that_moves_the_run_on(
    rows: Any, run: dict[str, Any], step: dict[str, Any], said: list[str]
) -> None:
    assert commands(next_commands(rows.run(**{"outcome": None, **run}), [rows.step(**step)], PlanFacts())) == said


@pytest.mark.parametrize(
    ("detail", "raised"),
    [
        ("the budget's max_units of 3 is used up (3)", "max_units=6"),
        ("the budget's max_duration of 1s is used up (3.029s)", "max_duration=7s"),
        ("the budget's max_cost_usd of 0.25 is used up (0.3)", "max_cost_usd=0.6"),
        ("the budget's max_tokens of 1000 leaves too little (900 used) for 20,000 more", "max_tokens=41800"),
        ("the budget's max_units of 3 is used up (4), in run 01JD above", "max_units=8"),
    ],
)
def test_a_ceiling_that_was_reached_is_to_be_raised_to_twice_what_was_needed(
    rows: Any, detail: str, raised: str
) -> None:
    step = rows.step(state="failed", reason="budget_exceeded", detail=detail)
    run = rows.run(state="failed", reason="budget_exceeded", outcome="failed")
    found = commands(next_commands(run, [step], PROMPT, failed=False))
    assert found == [f"interlock resume 01JDRUN --raise {raised}"]
    name, value = raised.split("=")
    assert resume.ceiling(name, value)[1] > 0


def test_of_child_runs_that_reached_their_ceiling_the_highest_is_raised(rows: Any) -> None:
    told = ("the budget's max_units of 3 is used up (3)", "the budget's max_units of 9 is used up (9)")
    step = rows.step(state="failed", reason="child_failed", detail="; ".join(f"run 01C: {text}" for text in told))
    run = rows.run(state="failed", reason="child_failed", outcome="failed")
    assert commands(next_commands(run, [step], PROMPT))[0] == "interlock resume 01JDRUN --raise max_units=18"


@pytest.mark.parametrize("state", ["blocked", "failed"])
def test_an_effect_that_nobody_knows_of_is_asked_for_in_a_failed_run_before_a_fork_is_named(
    state: str, rows: Any
) -> None:
    run = rows.run(state="failed", reason="non_zero_exit", outcome="failed")
    step = rows.step(state=state, reason="effect_unknown")
    asked = Asked(unknown={0: ("send:solo",)})
    assert commands(next_commands(run, [step], PROMPT, asked, failed=False)) == [
        "interlock resolve 01JDRUN send:solo --done",
        "interlock resolve 01JDRUN send:solo --rerun",
        "interlock resume 01JDRUN",
    ]


def test_where_no_unit_failed_none_are_to_be_listed(rows: Any) -> None:
    run = rows.run(state="failed", reason="rejected", outcome="failed")
    step = rows.step(state="failed", reason="rejected", detail="a person rejected it")
    assert commands(next_commands(run, [step], PROMPT, failed=False)) == [
        "interlock resume 01JDRUN",
        "interlock fork 01JDRUN",
    ]


@pytest.mark.parametrize(
    ("step", "done"),
    [
        ('"output_schema_json":"{\\"type\\":\\"object\\"}"', "--done --result JSON"),
        ('"output_schema_json":"{\\"type\\":[\\"object\\",\\"null\\"]}"', "--done"),
        (
            '"output_schema_json":"{\\"type\\":\\"array\\"}","map":{"item_schema_json":"{\\"type\\":\\"string\\"}"}',
            "--done --result JSON",
        ),
        ('"output_schema_json":"{\\"type\\":\\"array\\"}","map":{}', "--done"),
    ],
)
def test_who_says_that_an_effect_took_place_gives_the_result_that_its_schema_asks_for(
    rows: Any, step: str, done: str
) -> None:
    facts = plan_facts(f'{{"steps":[{{"id":"one",{step}}}]}}'.encode())
    blocked = rows.step(state="blocked", reason="effect_unknown")
    found = next_commands(rows.run(**BLOCKED), [blocked], facts, Asked(unknown={0: ("one:solo",)}))
    assert [entry.command for entry in found] == [
        f"interlock resolve 01JDRUN one:solo {done}",
        "interlock resolve 01JDRUN one:solo --rerun",
    ]


def test_a_rejected_prompt_may_try_again_or_pass_on_a_person_s_verdict(rows: Any) -> None:
    step = rows.step(state="blocked", reason="gate_rejected")
    assert commands(next_commands(rows.run(**BLOCKED), [step], PROMPT)) == [
        "interlock resume 01JDRUN --loops +1",
        'interlock reject 01JDRUN one --note "..."',
        'interlock approve 01JDRUN one --override --note "..."',
    ]


def test_a_rejected_command_can_only_be_checked_again_or_overruled(rows: Any) -> None:
    step = rows.step(state="blocked", reason="gate_rejected")
    assert next_commands(rows.run(**BLOCKED), [step], COMMAND) == [
        Next("interlock resume 01JDRUN", "ask the gate again, once what it looks at has changed"),
        Next('interlock approve 01JDRUN one --override --note "..."', "let it pass on your own verdict"),
    ]


@pytest.mark.parametrize(
    ("facts", "after"), [(PROMPT, "let it try once more with your note"), (COMMAND, "fail the step")]
)
def test_who_must_approve_is_told_what_to_read_and_both_answers(rows: Any, facts: PlanFacts, after: str) -> None:
    step = rows.step(state="blocked", reason="approval_needed")
    asked = Asked(approvals={0: (Gate("one.gate:l1"),)})
    found = next_commands(rows.run(**BLOCKED), [step], facts, asked)
    assert commands(found)
    assert found == [
        Next("interlock status 01JDRUN --artifact one", "read what it made"),
        Next("interlock approve 01JDRUN one", "let it pass"),
        Next('interlock reject 01JDRUN one --note "..."', after),
    ]


def test_items_that_are_approved_alone_are_each_named(rows: Any) -> None:
    step = rows.step(state="blocked", reason="approval_needed")
    asked = Asked(approvals={0: (Gate("one.gate:aa:l1", "a.py"), Gate("one.gate:bb:l1", "b.py"))}, more={0: 1_200})
    found = next_commands(rows.run(**BLOCKED), [step], PROMPT, asked)
    assert commands(found)
    assert found == [
        Next("interlock status 01JDRUN --artifact one", "read what it made"),
        Next("interlock approve 01JDRUN one", "let every item that waits pass"),
        Next("interlock approve 01JDRUN one.gate:aa:l1", "let item a.py pass"),
        Next("interlock approve 01JDRUN one.gate:bb:l1", "let item b.py pass"),
        Next('interlock reject 01JDRUN one.gate:aa:l1 --note "..."', "let it try once more with your note"),
        Next("interlock units 01JDRUN --step one --all --state pending", "1,200 more wait"),
    ]


def test_every_blocked_step_is_answered_for(rows: Any) -> None:
    steps = [
        rows.step(state="blocked", reason="approval_needed"),
        rows.step(step=1, id="two", state="blocked", reason="module_changed"),
        rows.step(step=2, id="three", state="blocked", reason="module_changed"),
    ]
    assert commands(next_commands(rows.run(**BLOCKED), steps, PROMPT)) == [
        "interlock status 01JDRUN --artifact one",
        "interlock approve 01JDRUN one",
        'interlock reject 01JDRUN one --note "..."',
        "interlock resume 01JDRUN --accept-changes",
        "interlock run 01JDRUN",
    ]


def test_an_unknown_effect_asks_for_an_answer_before_anything_else(rows: Any) -> None:
    blocked = rows.run(state="blocked", reason="effect_unknown")
    asked = Asked(unknown={0: ("one:solo",)})
    step = rows.step(state="blocked", reason="effect_unknown")
    assert commands(next_commands(blocked, [step], COMMAND, asked)) == [
        "interlock resolve 01JDRUN one:solo --done",
        "interlock resolve 01JDRUN one:solo --rerun",
    ]
    silent = rows.step(state="blocked", reason="probe_unavailable")
    assert commands(next_commands(blocked, [silent], COMMAND, asked)) == [
        "interlock resolve 01JDRUN one:solo --done",
        "interlock resolve 01JDRUN one:solo --rerun",
        "interlock run 01JDRUN",
    ]


def test_a_run_under_way_is_to_be_watched_not_driven(rows: Any) -> None:
    assert commands(next_commands(rows.run(state="active"), [], PROMPT, live=True)) == [
        "interlock events 01JDRUN --follow"
    ]


def test_a_run_under_way_takes_answers_but_no_second_driver(rows: Any) -> None:
    steps = [
        rows.step(state="blocked", reason="gate_rejected"),
        rows.step(step=1, id="two", state="blocked", reason="check_unavailable"),
    ]
    assert commands(next_commands(rows.run(state="active"), steps, PROMPT, live=True)) == [
        'interlock reject 01JDRUN one --note "..."',
        OVERRIDE,
        'interlock approve 01JDRUN two --override --note "..."',
        "interlock events 01JDRUN --follow",
    ]


def test_a_run_that_has_just_ended_is_not_to_be_watched_though_its_driver_is_still_there(rows: Any) -> None:
    run = rows.run(state="abandoned", outcome="abandoned")
    assert commands(next_commands(run, [], PROMPT, live=True)) == ["interlock resume 01JDRUN"]
