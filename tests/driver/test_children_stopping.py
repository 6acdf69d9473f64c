"""Child runs and what stops them: time, budgets, failures beside them, interrupts, dead drivers."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.driver.family_world import ASK, MAP, ONE, PATIENCE_S, SAY, World, drive_elsewhere, until

import interlock
from interlock.cli.reading import read_next, read_run
from interlock.errors import UsageError
from interlock.model import events as ev
from interlock.model.run import Snapshot


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_nothing_new_starts_in_a_child_once_its_parent_has_failed(world: World) -> None:
    parent = "steps:\n  - { id: below, needs: [], uses: ./child.md }\n  - { id: bad, needs: [], run: 'until test -e said; do sleep 0.01; done; exit 3' }"
    child = "steps:\n  - { id: slow, run: 'echo slow >> said; sleep 0.5' }\n  - { id: next, run: 'echo next >> said' }"
    world.write(parent=parent, child=child)
    first = world.run()
    assert (first.state, first.reason) == ("failed", "non_zero_exit")
    assert world.lines() == ["slow"], "what ran has ended, and nothing followed"
    (row,) = world.children(first.run_id)
    assert (row.state, row.detail) == ("failed", "stopped with the run above")
    second = world.app.resume(first.run_id)
    assert world.lines() == ["slow", "next"], "the child went on, its finished step was not repeated"
    assert second.state == "failed"


@pytest.mark.parametrize("deep", [1, 2, 3])
def test_a_childs_time_ends_it_and_what_runs_in_it_however_deep(world: World, deep: int) -> None:
    child = "steps:\n  - { id: hang, run: 'echo $$ >> said; sleep 60 & echo $! >> said; wait' }\n  - { id: no, run: 'echo no >> said' }"
    for level in range(1, deep):
        below = "child" if level == deep - 1 else f"middle{level + 1}"
        world.write(**{f"middle{level}": f"steps:\n  - {{ id: m, uses: ./{below}.md }}"})
    first = "child" if deep == 1 else "middle1"
    world.write(parent=f"steps:\n  - {{ id: below, uses: ./{first}.md, timeout: 1s }}", child=child)
    result = world.run(timeout_s=30)
    assert (result.state, result.reason) == ("failed", "timeout")
    (row,) = world.children(result.run_id)
    assert (row.state, row.reason) == ("failed", "timeout")
    until(lambda: not [pid for pid in world.lines() if Path("/proc", pid).exists()])


@pytest.mark.parametrize(("mine", "its"), [("budget: { max_units: 2 }", ""), ("", "budget: { max_units: 2 }")])
def test_the_tighter_of_both_budgets_holds(world: World, mine: str, its: str) -> None:
    steps = "\n".join(f"  - {{ id: s{n}, run: 'echo {n} >> said' }}" for n in range(4))
    world.write(parent=f"{mine}\nsteps:\n  - {{ id: below, uses: ./child.md }}", child=f"{its}\nsteps:\n{steps}")
    first = world.run()
    assert (first.state, first.reason) == ("failed", "budget_exceeded" if mine else "child_failed")
    assert world.lines() == ["0", "1"]
    assert "max_units of 2 is used up (2)" in first.detail
    for run_id in (first.run_id, world.children(first.run_id)[0].id):
        rows = read_run(world.app.store, run_id)
        best = read_next(world.app, rows)[0].command
        assert best == f"interlock resume {first.run_id} --raise max_units=4"
    with pytest.raises(UsageError) as caught:
        world.app.resume(first.run_id, raises={"max_units": 2})
    assert str(caught.value) == "max_units is 2 already; 2 would not raise it"
    third = world.app.resume(first.run_id, raises={"max_units": 3})
    assert (third.state, world.lines()) == ("failed", ["0", "1", "2"]), "what a child has not is not given to it"
    assert "max_units of 3 is used up (3)" in third.detail
    result = world.app.resume(first.run_id, raises={"max_units": 9})
    assert (result.state, world.lines()) == ("completed", ["0", "1", "2", "3"])


def test_a_ceiling_that_is_raised_for_children_is_none_of_their_parent(world: World) -> None:
    parent = "steps:\n  - { id: a, run: echo a }\n  - { id: b, run: echo b }\n  - { id: below, uses: ./child.md }"
    world.write(
        parent=parent, child="budget: { max_units: 1 }\nsteps:\n  - { id: s, run: echo s }\n  - { id: t, run: echo t }"
    )
    first = world.run()
    assert (first.state, world.app.resume(first.run_id, raises={"max_units": 2}).state) == ("failed", "completed")


def test_the_runs_concurrency_holds_for_all_children_together(world: World) -> None:
    (world.folder / "interlock.toml").write_text("[run]\nmax_concurrency = 1\n", encoding="utf-8")
    child = """params: { name: {} }
steps:
  - { id: a, needs: [], run: 'mkdir busy && sleep 0.05 && rmdir busy' }
  - { id: b, needs: [], run: 'mkdir busy && sleep 0.05 && rmdir busy' }"""
    world.write(parent=MAP.replace("ON_ERROR", "fail"), child=child)
    world.app = interlock.open(world.folder)
    assert world.run().state == "completed"


def test_to_abandon_a_run_ends_its_children_and_resume_goes_on_with_them(world: World) -> None:
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }", child=ASK)
    first = world.run()
    (child,) = world.children(first.run_id)
    assert world.app.abandon(first.run_id).state == "abandoned"
    assert world.app.store.run(child.id).state == "abandoned"
    second = world.app.resume(first.run_id)
    assert (second.state, second.reason) == ("blocked", "approval_needed")
    assert world.lines() == ["made me"]
    assert [row.id for row in world.children(first.run_id)] == [child.id]


def test_an_interrupt_ends_what_runs_in_children_and_the_next_driver_goes_on(world: World) -> None:
    child = "steps:\n  - { id: once, run: 'echo once >> said' }\n  - { id: long, run: 'echo long >> said; test -e go || sleep 60' }"
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }", child=child)
    driver = drive_elsewhere(world)
    until(lambda: world.lines() == ["once", "long"])
    driver.send_signal(signal.SIGINT)
    assert driver.wait(PATIENCE_S) == 130
    (run,) = world.app.store.runs()
    (row,) = world.children(run.id)
    assert (run.state, run.reason, row.state, row.reason) == ("active", "interrupted", "active", "interrupted")
    (world.folder / "go").touch()
    assert world.app.run_id(run.id).state == "completed"
    assert world.lines() == ["once", "long", "long"]
    assert [attempt.number for attempt in world.app.store.attempts(run.id, 0, 0)] == [1]


def test_a_driver_that_dies_leaves_children_that_the_next_goes_on_with(world: World) -> None:
    child = "steps:\n  - { id: once, run: 'echo once >> said' }\n  - { id: long, run: 'echo long >> said; test -e go || sleep 60' }"
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }", child=child)
    driver = drive_elsewhere(world)
    until(lambda: world.lines() == ["once", "long"])
    driver.kill()
    driver.wait(PATIENCE_S)
    (world.folder / "go").touch()
    (run,) = world.app.store.runs()
    assert world.app.run_id(run.id).state == "completed"
    assert world.lines() == ["once", "long", "long"]
    (row,) = world.children(run.id)
    assert [attempt.state for attempt in world.app.store.attempts(row.id, 1, 0)] == ["lost", "completed"]
    assert [attempt.state for attempt in world.app.store.attempts(run.id, 0, 0)] == ["completed"]


def test_a_live_driver_takes_answers_for_its_children(world: World) -> None:
    parent = "steps:\n  - { id: below, needs: [], uses: ./child.md }\n  - { id: busy, needs: [], run: 'until test -e go; do sleep 0.02; done' }"
    world.write(parent=parent, child=ASK + "  - { id: end, run: 'touch go; echo end' }\n")
    driver = drive_elsewhere(world)
    until(lambda: [row.state for run in world.app.store.runs() for row in world.children(run.id)] == ["blocked"])
    (run,) = world.app.store.runs()
    world.app.approve(world.children(run.id)[0].id)
    assert driver.wait(PATIENCE_S) == 0
    assert world.artifact(run.id, "below") == "end"


def test_what_happens_is_told_in_order_with_the_run_that_it_happened_in(world: World) -> None:
    world.write(parent=ONE, child=SAY)
    told: list[tuple[str, str]] = []

    def observe(events: Any, snap: Snapshot) -> None:
        moved = [event for event in events if isinstance(event, ev.StepStarted | ev.StepMoved)]
        told.extend((snap.steps[event.step].id, type(event).__name__) for event in moved)

    world.run(on_event=observe)
    assert told == [
        (step, what)
        for step, what in [
            ("first", "StepStarted"),
            ("first", "StepMoved"),
            ("below", "StepStarted"),
            ("say", "StepStarted"),
            ("say", "StepMoved"),
            ("again", "StepStarted"),
            ("again", "StepMoved"),
            ("below", "StepMoved"),
            ("last", "StepStarted"),
            ("last", "StepMoved"),
        ]
    ]


def test_below_a_run_that_failed_nothing_is_asked_again_before_it_is_reopened(world: World) -> None:
    parent = (
        "steps:\n  - { id: below, needs: [], uses: ./child.md }\n"
        "  - { id: bad, needs: [], run: 'until test -e said; do sleep 0.01; done; sleep 0.3; test -e good' }"
    )
    child = "steps:\n  - { id: s, run: 'echo x >> said', gate: { check: [./check] } }"
    world.write(parent=parent, child=child)
    first = world.run()
    (row,) = world.children(first.run_id)
    assert (first.state, row.state, row.reason) == ("failed", "blocked", "check_unavailable")
    (world.folder / "check").write_text("#!/bin/sh\n")
    (world.folder / "check").chmod(0o755)
    assert world.app.run_id(first.run_id).state == "failed"
    assert world.app.store.run(row.id).state == "blocked"
    (world.folder / "good").touch()
    assert world.app.resume(first.run_id).state == "completed"
    assert world.lines() == ["x"]


@pytest.mark.parametrize("again", ["retry", "resume"])
def test_a_child_that_is_tried_again_goes_on_with_its_own_child_that_waits_for_a_person(
    world: World, again: str
) -> None:
    retry = ", retry: { max: 1, on: [child_failed], backoff: { initial: 1ms } }" if again == "retry" else ""
    middle = (
        "steps:\n  - { id: low, needs: [], uses: ./child.md }\n"
        "  - { id: bad, needs: [], run: 'echo try >> tried; until test -e said; do sleep 0.01; done; sleep 0.3;"
        " test $(grep -c try tried) = 2' }"
    )
    world.write(parent=f"steps:\n  - {{ id: top, uses: ./middle.md{retry} }}", middle=middle, child=ASK)
    first = world.run(timeout_s=PATIENCE_S)
    if again == "resume":
        assert (first.state, first.reason) == ("failed", "child_failed")
        first = world.app.resume(first.run_id, timeout_s=PATIENCE_S)
    assert (first.state, first.reason) == ("blocked", "approval_needed"), first.detail
    (middle_run,) = world.children(first.run_id)
    (lowest,) = world.children(middle_run.id)
    world.app.approve(lowest.id)
    result = world.app.run_id(first.run_id, timeout_s=PATIENCE_S)
    assert (result.state, world.lines(), len(world.lines("tried"))) == ("completed", ["made me"], 2)


def test_below_a_run_that_failed_who_waits_for_a_person_waits_on_however_deep(world: World) -> None:
    bad = "until test -e said; do sleep 0.01; done; sleep 0.3; test -e good"
    parent = f"steps:\n  - {{ id: top, needs: [], uses: ./middle.md }}\n  - {{ id: bad, needs: [], run: '{bad}' }}"
    world.write(parent=parent, middle="steps:\n  - { id: low, uses: ./child.md }", child=ASK)
    first = world.run(timeout_s=PATIENCE_S)
    (middle,) = world.children(first.run_id)
    (lowest,) = world.children(middle.id)
    assert (first.state, middle.state, lowest.state) == ("failed", "blocked", "blocked")
    (world.folder / "good").touch()
    second = world.app.resume(first.run_id, timeout_s=PATIENCE_S)
    assert (second.state, second.reason) == ("blocked", "approval_needed")
    world.app.approve(lowest.id)
    result = world.app.run_id(first.run_id, timeout_s=PATIENCE_S)
    assert (result.state, world.lines()) == ("completed", ["made me"])


def test_children_that_waited_go_on_no_more_at_a_time_than_their_map_allows(world: World) -> None:
    child = ASK + "  - { id: then, run: 'echo begin >> order; sleep 0.2; echo end >> order' }\n"
    middle = "params: { name: {} }\nsteps:\n  - { id: m, uses: ./child.md, with: { name: params.name } }"
    world.write(middle=middle, child=child)
    world.write(
        parent=MAP.replace("ON_ERROR", "fail").replace("concurrency: 2", "concurrency: 1").replace("child", "middle")
    )
    first = world.run()
    for row in world.app.store.runs(children=True):
        if row.workflow == "child.md":
            world.app.approve(row.id)
    assert world.app.run_id(first.run_id, timeout_s=PATIENCE_S).state == "completed"
    assert world.lines("order") == ["begin", "end"] * 3


def test_a_step_that_failed_for_good_leaves_none_of_its_children_to_wait(world: World) -> None:
    world.write(parent=MAP.replace("ON_ERROR", "fail").replace("[a, b, c]", "[a, b]"), child=ASK)
    first = world.run()
    rows = {json.loads(row.params_json)["name"]: row.id for row in world.children(first.run_id)}
    world.app.reject(rows["a"], note="no")
    second = world.app.run_id(first.run_id)
    assert (second.state, second.reason, second.exit_code) == ("failed", "child_failed", 1)
    assert [row.state for row in world.children(first.run_id)] == ["failed", "failed"]
    third = world.app.resume(first.run_id)
    assert (third.state, third.reason) == ("blocked", "approval_needed")
    for run_id in rows.values():
        world.app.approve(run_id)
    assert world.app.run_id(first.run_id).state == "completed"
    assert sorted(world.lines()) == ["made a", "made b"]


def test_the_time_of_a_child_that_waits_for_a_person_ends_it_while_others_run(world: World) -> None:
    parent = (
        "steps:\n  - { id: below, needs: [], uses: ./child.md, timeout: 700ms, on_error: continue }\n"
        "  - { id: busy, needs: [], run: sleep 1.5 }\n  - { id: last, needs: [below, busy], run: echo x }"
    )
    world.write(parent=parent, child=ASK)
    result = world.run(timeout_s=PATIENCE_S)
    assert (result.state, result.outcome) == ("completed", "degraded")
    (row,) = world.children(result.run_id)
    assert (row.state, row.reason) == ("failed", "timeout")
