"""Properties of every life of a run with prompts, judges, people and quotas."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decide.lives import ITEMS, Life, agent_plans
from tests.decide.runs import completions, dispatches, legal, promoted

from interlock.decide.fate import MISSES
from interlock.model import events as ev
from interlock.model.plan import Plan
from interlock.model.states import RunState, StepState
from interlock.testing.simulate import snapshot

_seeds = st.integers(0, 2**32)


def explained(life: Life) -> None:
    """Assert that the run's state follows from its steps': failed before blocked before waiting."""
    snap = life.simulation.snap
    states = [step.state for step in snap.steps]
    run = snap.run
    if run.state is RunState.COMPLETED:
        assert set(states) <= {StepState.COMPLETED, StepState.SKIPPED}
    elif StepState.FAILED in states:
        assert run.state is RunState.FAILED
        assert snap.halted is not None
    elif StepState.BLOCKED in states:
        assert run.state is RunState.BLOCKED
        assert run.reason in {step.reason for step in snap.steps if step.state is StepState.BLOCKED}
    else:
        assert StepState.WAITING in states
        assert run.reason == "llm_quota"
        assert (run.state is RunState.WAITING) == (run.wait_until is not None)
    if run.state is not RunState.ACTIVE:
        assert snap.running == snap.reserved_tokens == 0


@settings(max_examples=300)
@given(agent_plans(), _seeds)
def test_every_life_is_made_of_legal_moves_and_ends_well_once_the_world_is_mended(plan: Plan, seed: int) -> None:
    life = Life(plan, seed)
    life.live(explained)
    legal(plan, ITEMS, life.events)
    replayed = snapshot(plan, ITEMS, life.events)
    assert promoted(replayed) == promoted(life.simulation.snap)
    assert (replayed.tokens, replayed.parked) == (life.simulation.snap.tokens, life.simulation.snap.parked)


@given(agent_plans(), _seeds)
def test_a_unit_is_asked_for_a_correction_once_and_a_question_once_each_time_it_is_put(plan: Plan, seed: int) -> None:
    life = Life(plan, seed)
    life.live(lambda _life: None)
    asked: Counter[tuple[int, int]] = Counter()
    for event in life.events:
        if isinstance(event, ev.UnitMoved):
            asked[event.step, event.unit] = 0
        elif isinstance(event, ev.AttemptFinished) and event.reason in MISSES and event.unit_state == "pending":
            asked[event.step, event.unit] += 1
            assert asked[event.step, event.unit] == event.asks == 1


@given(agent_plans(), _seeds)
def test_nothing_that_completed_is_dispatched_again(plan: Plan, seed: int) -> None:
    life = Life(plan, seed)
    life.live(lambda _life: None)
    for at in range(0, len(life.events), 7):
        assert not completions(life.events[:at]) & set(dispatches(life.events[at:]))
