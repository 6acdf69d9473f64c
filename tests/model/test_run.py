from __future__ import annotations

import pytest

from interlock.model import events as ev
from interlock.model.run import Snapshot
from interlock.model.states import (
    ATTEMPT_ENDED,
    ATTEMPT_MOVES,
    NEVER_CONTINUED,
    NOT_RETRYABLE,
    RUN_MOVES,
    STEP_MOVES,
    UNIT_MOVES,
    AttemptState,
    RunState,
    StepState,
    UnitState,
)
from interlock.testing.build import over, plan, solo, step
from interlock.testing.simulate import snapshot


def begun(count: int = 3) -> Snapshot:
    units = tuple(solo(n, f"a:{n}") for n in range(count))
    specs = plan(step("a", map=over("params.items")), step("b"))
    return snapshot(specs, events=[ev.StepStarted(at=1, step=0, round=1, loop=1, units=units)])


def reserved(unit: int, number: int = 1) -> ev.AttemptReserved:
    return ev.AttemptReserved(at=1, step=0, unit=unit, number=number, dispatch=f"d{unit}.{number}")


def finished(unit: int, state: UnitState, usage: ev.Usage | None = None) -> ev.AttemptFinished:
    return ev.AttemptFinished(
        at=1, step=0, unit=unit, number=1, dispatch="d", state=AttemptState.COMPLETED, unit_state=state, usage=usage
    )


def test_each_table_names_every_state_and_an_ended_attempt_never_moves() -> None:
    for table, states in ((RUN_MOVES, RunState), (STEP_MOVES, StepState), (UNIT_MOVES, UnitState)):
        assert set(table) == set(states)
    assert set(ATTEMPT_MOVES) == set(AttemptState)
    assert {state for state, moves in ATTEMPT_MOVES.items() if not moves} == ATTEMPT_ENDED
    assert NEVER_CONTINUED < NOT_RETRYABLE


def test_units_may_be_reserved_in_any_order() -> None:
    snap = begun()
    snap.apply_all([reserved(2), reserved(0)])
    assert [unit.id for unit in snap.steps[0].ready] == ["a:1"]
    assert (snap.running, snap.dispatched) == (2, 2)


def test_an_end_that_comes_after_another_is_counted_once() -> None:
    snap = begun()
    snap.apply_all([reserved(0), finished(0, UnitState.COMPLETED), finished(0, UnitState.COMPLETED)])
    assert (snap.running, snap.steps[0].counts[UnitState.COMPLETED]) == (0, 1)


@pytest.mark.parametrize(
    ("usage", "tokens", "cost"),
    [
        (None, 0, 0.0),
        (ev.Usage(), 0, 0.0),
        (ev.Usage(input_tokens=3, output_tokens=4, cost_usd=0.5), 7, 0.5),
        (ev.Usage(output_tokens=4), 4, 0.0),
    ],
)
def test_usage_adds_up_and_what_is_unknown_adds_nothing(usage: ev.Usage | None, tokens: int, cost: float) -> None:
    snap = begun()
    snap.apply_all([reserved(0), finished(0, UnitState.COMPLETED, usage)])
    assert (snap.tokens, snap.cost_usd) == (tokens, cost)


def test_a_step_that_ended_twice_or_reopened_twice_stands_once_in_the_list_of_open_ones() -> None:
    snap = begun()
    ended = ev.StepMoved(at=1, step=0, state=StepState.FAILED)
    pending = ev.StepMoved(at=1, step=0, state=StepState.PENDING)
    snap.apply_all([ended, ended])
    assert (snap.open, snap.halted) == ([1], 0)
    snap.apply_all([pending, pending])
    assert snap.open == [0, 1]


def test_only_a_run_that_had_ended_forgets_what_stopped_it() -> None:
    snap = begun()
    snap.apply(ev.StepMoved(at=1, step=0, state=StepState.FAILED))
    snap.apply(ev.RunMoved(at=1, state=RunState.ACTIVE, reason="interrupted", driven_ms=5))
    assert (snap.halted, snap.run.driven_ms) == (0, 5)
    snap.apply(ev.RunMoved(at=1, state=RunState.FAILED))
    snap.apply(ev.RunMoved(at=1, state=RunState.ACTIVE))
    assert snap.halted is None


def test_a_plan_finds_its_steps_by_id() -> None:
    specs = plan(step("a"), step("b"))
    assert specs.step("b").needs == ("a",)
    with pytest.raises(KeyError):
        specs.step("c")
