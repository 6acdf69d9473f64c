"""Properties that hold of every run, whatever the plan, the world and the moment of a crash."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decide.runs import PARAMS, completions, dispatches, legal, picker, plans, promoted, text_of, world

from interlock.decide.reopen import reopen
from interlock.model.plan import Plan
from interlock.model.states import RunState, StepState, UnitState
from interlock.testing.build import ok
from interlock.testing.simulate import Simulation, simulate, snapshot

_seeds = st.integers(0, 2**32)


@given(plans(), _seeds)
def test_every_event_of_a_run_is_a_legal_move(plan: Plan, seed: int) -> None:
    done = simulate(plan, world(seed, plan), PARAMS, pick=picker(seed))
    legal(plan, PARAMS, done.events)


@given(plans(), _seeds)
def test_a_run_replayed_from_its_events_is_the_same_run(plan: Plan, seed: int) -> None:
    done = simulate(plan, world(seed, plan), PARAMS, pick=picker(seed))
    assert promoted(snapshot(plan, PARAMS, done.events)) == promoted(done.snap)


@given(plans(kinds="solo map route"))
def test_a_step_is_skipped_exactly_where_the_naive_rule_says(plan: Plan) -> None:
    done = simulate(plan, lambda step, unit: ok(text_of(step, unit)), PARAMS)
    skipped: set[str] = set()
    chosen: set[str] = set()
    for spec in plan.steps:
        all_skipped = spec.explicit_needs and spec.needs and set(spec.needs) <= skipped
        if all_skipped or (spec.routers and spec.id not in chosen):
            skipped.add(spec.id)
        elif spec.route:
            chosen.add(spec.route.when[0].step)
    assert {step.id for step in done.snap.steps if step.state is StepState.SKIPPED} == skipped
    assert done.snap.run.state is RunState.COMPLETED


@given(plans(), _seeds)
def test_the_order_of_ends_changes_no_artifact(plan: Plan, seed: int) -> None:
    first = simulate(plan, world(seed, plan), PARAMS)
    other = simulate(plan, world(seed, plan), PARAMS, pick=picker(seed))
    assert first.snap.run.state is other.snap.run.state
    if first.snap.run.state is not RunState.FAILED:
        assert promoted(first.snap) == promoted(other.snap)


@settings(max_examples=60)
@given(plans(), _seeds)
def test_a_driver_that_dies_after_any_event_loses_and_repeats_nothing(plan: Plan, seed: int) -> None:
    whole = simulate(plan, world(seed, plan), PARAMS, pick=picker(seed))
    for cut in range(1, len(whole.events) + 1):
        prefix = whole.events[:cut]
        again = simulate(plan, world(seed, plan), PARAMS, pick=picker(seed + cut), prefix=prefix)
        legal(plan, PARAMS, [*prefix, *again.events])
        assert not completions(prefix) & set(dispatches(again.events)), cut
        assert again.snap.run.state is whole.snap.run.state, cut
        if whole.snap.run.state is not RunState.FAILED:
            assert promoted(again.snap) == promoted(whole.snap), cut


@settings(max_examples=60)
@given(plans(kinds="solo map route gate each continue retry external prompt judges judged whole"), _seeds)
def test_a_reopened_run_ends_well_once_the_world_is_mended(plan: Plan, seed: int) -> None:
    whole = simulate(plan, world(seed, plan), PARAMS, pick=picker(seed))
    if whole.snap.run.state is RunState.COMPLETED:
        return
    again = Simulation(snapshot(plan, PARAMS, whole.events), world(seed, plan, troubles=0))
    for _ in range(3):
        # a gate may have rejected one item and been unable to judge another: these are asked one after the other
        if again.snap.run.state is not RunState.COMPLETED:
            again.add(*reopen(again.snap, again.now()))
            again.run()
    legal(plan, PARAMS, [*whole.events, *again.events])
    assert again.snap.run.state is RunState.COMPLETED
    assert not completions(whole.events) & set(dispatches(again.events))


@given(plans(), _seeds)
def test_a_failed_run_leaves_nothing_pending_in_the_steps_it_began(plan: Plan, seed: int) -> None:
    done = simulate(plan, world(seed, plan, troubles=50), PARAMS, pick=picker(seed))
    for step in done.snap.steps:
        if step.state is StepState.FAILED:
            assert step.counts[UnitState.PENDING] == step.counts[UnitState.WAITING] == 0
