"""A fork told before it starts is the fork that then runs; and a step taken as it is stays what it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decide.forks import Past, fork, taken
from tests.decide.runs import PARAMS, by_unit, plans, world
from tests.decide.test_reuse import changed

from interlock.decide.forking import TAKEN, ForkStep, ForkUnit, as_it_is, explain, play
from interlock.decide.now import Now
from interlock.model import events as ev
from interlock.model.plan import Plan
from interlock.model.run import Snapshot
from interlock.model.states import StepState, UnitState
from interlock.testing.build import check, failed, judged, ok, over, plan, prompt, route, step
from interlock.testing.simulate import Simulation, simulate, snapshot

NOW = Now(at=5)


def explained(past: Past, specs: Plan, params: dict[str, Any] | None = None) -> tuple[ForkStep, ...]:
    snap = snapshot(specs, past.snap.run.params if params is None else params)
    snap.reuse = past.index()
    play(snap, NOW)
    return explain(past.snap, snap)


def said(found: tuple[ForkStep, ...]) -> list[tuple[str, str]]:
    return [(one.action, one.why) for one in found]


def units(found: tuple[ForkStep, ...], at: int = 0) -> list[tuple[str, str]]:
    return [(unit.action, unit.why) for unit in found[at].units or ()]


def took(past: Past, specs: Plan, count: int) -> Snapshot:
    """A fork that took its first steps as they were."""
    snap = snapshot(specs, past.snap.run.params)
    for one in snap.steps[:count]:
        snap.apply_all(as_it_is(past.snap, snap, one, past.done, 7))
    return snap


# told before it starts


@given(specs=plans(), seed=st.integers(0, 10**6), at=st.none() | st.integers(0, 6))
def test_what_is_told_is_what_the_fork_does(specs: Plan, seed: int, at: int | None) -> None:
    past = Past(simulate(specs, world(seed, specs), PARAMS))
    new = specs if at is None else changed(specs, at)
    told = {unit.id: unit for one in explained(past, new) for unit in one.units or ()}
    made = fork(past, new, world(seed + 1, specs))
    real = {unit.id: unit for one in made.snap.steps for unit in one.units if unit.kind == "work"}
    for unit_id, unit in told.items():
        assert unit_id in real
        assert real[unit_id].origin == unit.origin
        assert (unit.action == "reuse") is (unit.origin is not None)
        assert unit.why


@given(specs=plans(), seed=st.integers(0, 10**6))
def test_a_run_that_went_well_is_told_to_be_reused_whole(specs: Plan, seed: int) -> None:
    past = Past(simulate(specs, world(seed, specs, troubles=0), PARAMS))
    if past.snap.run.outcome == "ok":
        assert {one.action for one in explained(past, specs)} <= {"reuse", "decide", "skip"}


def test_a_changed_prompt_runs_again_and_what_needs_it_is_not_known_yet() -> None:
    old = plan(step("a"), step("b", prompt("Old.")), step("c", inputs=["steps.b.output"]))
    new = plan(step("a"), step("b", prompt("New.")), step("c", inputs=["steps.b.output"]))
    found = explained(Past(simulate(old, lambda _step, _unit: ok("x"))), new)
    assert said(found) == [
        ("reuse", "all of it is taken over"),
        ("run", "1 of 1 to run"),
        ("unknown", "not known before b has run"),
    ]
    (unit,) = found[1].units or ()
    assert unit == ForkUnit(
        id="b:solo", action="run", why="changed: prompt", changed=("prompt",), old=ev.Origin("run", "b:solo", 1)
    )


def test_new_items_failed_items_and_taken_ones_are_told_apart() -> None:
    specs = plan(step("a", map=over("params.items"), on_error="continue"))
    answers = by_unit({}, lambda _step, unit: failed() if unit.item == b'"bad"' else ok("x"))
    past = Past(simulate(specs, answers, {"items": ["good", "bad"]}))
    changed_params = explained(past, specs, {"items": ["good", "bad", "new"]})
    # the list is a parameter, so every unit's input is another
    assert [action for action, _ in units(changed_params)] == ["run", "run", "run"]
    assert units(changed_params)[0] == ("run", "changed: params")
    assert units(changed_params)[2] == ("run", "new: the old run had no such unit")
    assert units(explained(past, specs)) == [
        ("reuse", "completed in run run"),
        ("run", "was failed in the old run (non_zero_exit)"),
    ]


def test_work_that_was_stopped_or_is_still_under_way_is_told_so() -> None:
    specs = plan(step("a", map=over("params.items", concurrency=1)))
    past = Past(simulate(specs, lambda _step, _unit: failed(), {"items": [1, 2]}))
    assert units(explained(past, specs))[1] == ("run", "was not_run in the old run (stopped)")
    begun = Simulation(snapshot(specs, {"items": [1, 2]}), lambda _step, _unit: ok("x"))
    begun.turn()
    assert units(explained(Past(begun), specs)) == [
        ("reuse", "completed in run run"),
        ("run", "was pending in the old run"),
    ]


def test_a_gate_that_judges_anew_a_person_to_ask_and_a_route_are_told() -> None:
    old = plan(step("a", prompt(), gate=judged()))
    past = Past(simulate(old, lambda _s, u: ok('{"complete": true}' if u.kind == "judge" else "x")))
    assert said(explained(past, plan(step("a", prompt(), gate=check())))) == [("run", "its gate has to judge anew")]
    person = plan(step("a", prompt(), gate=judged(approval=True)))
    assert said(explained(past, person)) == [("ask", "approval_needed")]
    routed = plan(
        step("a"), step("r", route=route("steps.a.output", {"x": "b"}, "c")), step("b", needs=[]), step("c", needs=[])
    )
    past = Past(simulate(routed, lambda _step, _unit: ok("x")))
    assert said(explained(past, routed)) == [
        ("reuse", "all of it is taken over"),
        ("decide", "by steps.a.output"),
        ("reuse", "all of it is taken over"),
        ("skip", "a route chose otherwise"),
    ]
    later = plan(step("a", "false"), *routed.steps[1:])
    assert said(explained(past, later))[1] == ("decide", "not known before a has run")


def test_a_step_that_would_fail_is_told_and_stops_what_follows() -> None:
    specs = plan(step("a"), step("b"))
    past = Past(simulate(specs, lambda _step, _unit: ok("x")))
    broken = plan(step("a", inputs=["params.gone"]), step("b"))
    found = explained(past, broken)
    assert found[0].action == "run"
    assert found[0].why.startswith("would fail: params.gone")
    assert said(found)[1] == ("unknown", "another step stopped the run")


def test_a_step_that_the_old_run_did_not_have_is_new() -> None:
    past = Past(simulate(plan(step("a")), lambda _step, _unit: ok("x")))
    found = explained(past, plan(step("a"), step("z")))
    assert units(found, 1) == [("run", "new: the old run had no such unit")]


def test_a_loop_is_compared_with_the_same_loop_and_what_the_old_run_saw_may_be_gone() -> None:
    specs = plan(step("a", prompt(), gate=judged(loops=3)))
    rejects = by_unit({"a.gate:l1.j1": [ok('{"complete": false}')]}, lambda _s, _u: ok('{"complete": true}'))
    past = Past(simulate(specs, rejects))
    assert past.snap.steps[0].loop == 2
    mended = plan(step("a", prompt("Else."), gate=judged(loops=3)))
    (unit,) = explained(past, mended)[0].units or ()
    assert (unit.id, unit.old, unit.changed) == ("a:solo", ev.Origin("run", "a:solo", 1), ("prompt",))


def beside(found: ForkStep) -> list[tuple[str, str]]:
    return [(unit.id, unit.action) for unit in found.beside]


def test_loops_before_and_judges_stand_beside_the_units() -> None:
    specs = plan(step("a", prompt(), gate=judged(loops=3)))
    answers = {"a.gate:l1.j1": [ok('{"complete": false}')], "a:solo": [ok("one")]}
    rejects = by_unit(answers, lambda _s, _u: ok('{"complete": true}'))
    past = Past(simulate(specs, rejects))
    (whole,) = explained(past, specs)
    assert beside(whole) == [("a:solo", "reuse"), ("a.gate:l1.j1", "reuse"), ("a.gate:l2.j1", "reuse")]
    (mended,) = explained(past, plan(step("a", prompt("Else."), gate=judged(loops=3))))
    assert beside(mended) == [("a.gate:l1.j1", "run"), ("a:solo~l2", "run"), ("a.gate:l2.j1", "run")]
    (unjudged,) = explained(past, plan(step("a", prompt(), gate=check())))
    assert beside(unjudged) == []


def test_of_items_that_are_judged_one_by_one_only_those_that_run_again_are_judged_again() -> None:
    specs = plan(step("a", prompt(), map=over("params.items"), gate=judged(each=True), on_error="continue"))
    answers = by_unit(
        {}, lambda _s, u: failed() if u.kind == "judge" and u.item == b'"bad"' else ok('{"complete": true}')
    )
    past = Past(simulate(specs, answers, {"items": ["good", "bad"]}))
    (found,) = explained(past, specs)
    good, bad = (unit.id for unit in past.snap.steps[0].units if unit.kind == "judge")
    assert (found.action, beside(found)) == ("run", [(good, "reuse"), (bad, "run")])


def test_work_whose_files_are_gone_runs_again_and_says_so() -> None:
    specs = plan(step("a"))
    past = Past(simulate(specs, lambda _step, _unit: ok("x")))
    past.snap.steps[0].work[0].left = "c0ffee"
    snap = snapshot(specs, past.snap.run.params)
    play(snap, NOW)
    (found,) = explain(past.snap, snap, gone={"c0ffee"})
    assert units((found,)) == [("run", "what it left in its worktree is gone")]


# steps taken as they are


@given(specs=plans(), seed=st.integers(0, 10**6))
def test_a_step_taken_as_it_is_has_the_state_artifact_and_route_that_it_had(specs: Plan, seed: int) -> None:
    past = Past(simulate(specs, world(seed, specs), PARAMS))
    done = [one for one in past.snap.steps if one.state in (StepState.COMPLETED, StepState.SKIPPED)]
    count = next((n for n, one in enumerate(past.snap.steps) if one not in done), len(past.snap.steps))
    snap = took(past, changed(specs, seed), count)
    for before, after in zip(past.snap.steps[:count], snap.steps[:count], strict=True):
        assert (after.state, after.artifact, after.route) == (before.state, before.artifact, before.route)
        was = [(unit.id, unit.state, unit.result) for unit in before.work]
        assert [(unit.id, unit.state, unit.result) for unit in after.work] == (was if before.units else [])
        assert all(unit.attempt == 0 for unit in after.units)


def test_a_taken_unit_keeps_the_hash_of_the_input_that_it_was_done_on() -> None:
    old = plan(step("a", prompt("Old.")), step("b", "old"))
    past = Past(simulate(old, lambda _step, _unit: ok("x")))
    mended = plan(step("a", prompt("Mended.")), step("b", "new"))
    started, moved = as_it_is(past.snap, snapshot(mended), snapshot(mended).steps[0], past.done, 7)
    assert isinstance(started, ev.StepStarted)
    assert isinstance(moved, ev.StepMoved)
    (unit,) = started.units
    assert unit.input_hash == TAKEN + past.input_hash("a", past.snap.steps[0].work[0])
    assert unit.reused is not None
    assert (unit.reused.origin, unit.reused.state) == (ev.Origin("run", "a:solo", 1), UnitState.COMPLETED)


def test_failed_items_stay_failed_and_a_skipped_step_and_a_route_have_no_units() -> None:
    specs = plan(
        step("m", map=over("params.items"), on_error="continue"),
        step("r", route=route("params.pick", {"x": "b"}, "c")),
        step("b", needs=[]),
        step("c", needs=[]),
    )
    answers = by_unit({}, lambda _step, unit: failed() if unit.index == 1 else ok("x"))
    past = Past(simulate(specs, answers, PARAMS))
    snap = took(past, specs, 4)
    assert [unit.state for unit in snap.steps[0].work] == ["completed", "failed", "completed"]
    assert [one.state for one in snap.steps] == ["completed", "completed", "completed", "skipped"]
    assert [len(one.units) for one in snap.steps] == [3, 0, 1, 0]
    assert snap.steps[1].route == ("b",)


def test_what_was_taken_as_it_was_and_what_another_program_hashed_otherwise_have_no_part_to_name() -> None:
    specs = plan(step("a"), step("b"))
    past = Past(simulate(specs, lambda _step, _unit: ok("x")))
    for old, why in (
        (took(past, specs, 1), "the old run took it as it was, from another input"),
        (past.snap, "its recorded input is another"),
    ):
        # without an index nothing is taken over
        snap = snapshot(specs)
        play(snap, NOW)
        (unit,) = explain(old, snap)[0].units or ()
        assert (unit.action, unit.why, unit.old) == ("run", why, ev.Origin("run", "a:solo", 1))


@pytest.mark.parametrize("mended", [False, True])
def test_a_run_goes_on_behind_what_it_took(mended: bool) -> None:  # noqa: FBT001 - a table's column
    old = plan(step("a", prompt("Old.")), step("b", inputs=["steps.a.output"]))
    past = Past(simulate(old, lambda step_, _unit: ok(step_.id)))
    new = plan(step("a", prompt("New." if mended else "Old.")), step("b", inputs=["steps.a.output"]))
    made = Simulation(took(past, new, 1), lambda step_, _unit: ok(step_.id.upper()))
    made.run()
    assert taken(made) == ["a:solo"]
    assert [one.artifact for one in made.snap.steps] == [b'"a"', b'"B"']
