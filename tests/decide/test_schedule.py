from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock.decide.next import next_actions
from interlock.decide.now import Now
from interlock.decide.schedule import MAX_WAITING, next_due, run_room, startable
from interlock.model import events as ev
from interlock.model.actions import Ahead, Dispatch
from interlock.model.events import Usage
from interlock.model.outcome import Outcome
from interlock.model.plan import Backoff, Budget, Command, Limits, Plan, Retry
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step, Unit
from interlock.model.states import AttemptState, RunState, StepState, UnitState
from interlock.testing.build import failed, ok, over, plan, prompt, step
from interlock.testing.simulate import BEGIN_MS, Simulation, simulate, snapshot

_ITEMS = {"items": list(range(10))}
_SLOW = Retry(max=3, backoff=Backoff(initial_ms=1_000, factor=1.0))


def unused(_step: Step, _unit: Unit) -> Outcome:
    raise AssertionError("nothing ends in this test")


def begun(specs: Plan, **now: Any) -> tuple[Snapshot, list[Dispatch]]:
    """Return a run up to its first dispatches."""
    simulation = Simulation(snapshot(specs, _ITEMS), unused)
    while True:
        actions = next_actions(simulation.snap, Now(at=BEGIN_MS, **now))
        if not actions or isinstance(actions[0], Dispatch):
            return simulation.snap, [action for action in actions if isinstance(action, Dispatch)]
        for action in actions:
            simulation.act(action)


def reserve(snap: Snapshot, dispatches: list[Dispatch]) -> None:
    Simulation(snap, unused).add(
        *[
            ev.AttemptReserved(
                at=1, step=d.step, unit=d.unit, number=snap.steps[d.step].units[d.unit].attempt + 1, dispatch=f"{d}"
            )
            for d in dispatches
        ]
    )


def end(snap: Snapshot, ordinal: int, state: UnitState, not_before: int | None = None) -> None:
    finished = ev.AttemptFinished(
        at=1,
        step=0,
        unit=ordinal,
        number=1,
        dispatch="d",
        state=AttemptState.FAILED,
        unit_state=state,
        not_before=not_before,
    )
    snap.apply(finished)


@pytest.mark.parametrize(
    ("own", "run", "expected"), [(None, None, 4), (3, None, 3), (9, 5, 5), (None, 2, 2), (300, None, 10)]
)
def test_a_map_runs_as_many_at_once_as_its_own_and_the_runs_limit_allow(
    own: int | None, run: int | None, expected: int
) -> None:
    specs = plan(step("m", map=over("params.items", concurrency=own)), limits=Limits(max_concurrency=run))
    assert len(begun(specs)[1]) == expected


def test_a_map_without_a_number_takes_the_hosts() -> None:
    assert len(begun(plan(step("m", map=over("params.items"))), map_concurrency=7)[1]) == 7


def test_steps_side_by_side_share_the_runs_limit() -> None:
    specs = plan(
        step("m", map=over("params.items", concurrency=3)),
        step("n", map=over("params.items", concurrency=3), needs=[]),
        limits=Limits(max_concurrency=5),
    )
    snap, dispatches = begun(specs)
    assert [d.step for d in dispatches] == [0, 0, 0, 1, 1]
    reserve(snap, dispatches)
    assert next_actions(snap, Now(at=BEGIN_MS)) == []


def lined_up(specs: Plan, waiting: int, each: int, running: int) -> list[Dispatch]:
    """Return what may begin beside `running` open attempts of which some wait in line."""
    simulation = Simulation(snapshot(specs, _ITEMS), unused)
    for action in next_actions(simulation.snap, Now(at=BEGIN_MS)):
        simulation.act(action)
    reserve(simulation.snap, [Dispatch(0, ordinal) for ordinal in range(running)])
    now = Now(at=BEGIN_MS, ahead={0: Ahead(waiting=waiting, each=each)})
    return [action for action in next_actions(simulation.snap, now) if isinstance(action, Dispatch)]


def test_what_waits_in_line_takes_no_place_and_what_may_wait_comes_after_the_places() -> None:
    specs = plan(step("m", map=over("params.items", concurrency=3)), limits=Limits(max_concurrency=3))
    assert lined_up(specs, waiting=2, each=2, running=4) == [
        Dispatch(0, 4),
        *[Dispatch(0, ordinal, ahead=True) for ordinal in range(5, 9)],
    ]
    assert lined_up(specs, waiting=1, each=1, running=4) == [Dispatch(0, 4, ahead=True), Dispatch(0, 5, ahead=True)]
    assert lined_up(specs, waiting=3, each=1, running=6) == []
    assert lined_up(specs, waiting=1, each=0, running=4) == []


def test_a_wide_map_has_no_more_in_line_than_a_commit_should_carry() -> None:
    items = {"items": list(range(3_000))}
    simulation = Simulation(snapshot(plan(step("m", map=over("params.items", concurrency=200))), items), unused)
    for action in next_actions(simulation.snap, Now(at=BEGIN_MS)):
        simulation.act(action)
    now = Now(at=BEGIN_MS, ahead={0: Ahead(waiting=0, each=64)})
    found = [action for action in next_actions(simulation.snap, now) if isinstance(action, Dispatch)]
    assert [d.unit for d in found] == list(range(200 + MAX_WAITING))
    assert sum(d.ahead for d in found) == MAX_WAITING


@pytest.mark.parametrize(
    ("options", "budget"),
    [
        ({"effects": "external"}, Budget()),
        ({"isolation": "worktree"}, Budget()),
        ({}, Budget(max_units=1_000)),
    ],
)
def test_nothing_waits_in_line_that_must_not_be_dispatched_twice_or_is_counted(
    options: dict[str, Any], budget: Budget
) -> None:
    specs = plan(step("m", map=over("params.items", concurrency=2), **options), budget=budget)
    assert lined_up(specs, waiting=0, each=9, running=1) == [Dispatch(0, 1)]


def test_steps_side_by_side_share_what_is_left_of_max_units() -> None:
    specs = plan(
        step("m", map=over("params.items", concurrency=3)),
        step("n", map=over("params.items", concurrency=3), needs=[]),
        budget=Budget(max_units=4),
    )
    done = simulate(specs, lambda _s, _u: ok(), _ITEMS)
    assert done.snap.dispatched == 4
    assert done.snap.run.state is RunState.FAILED


def test_retries_that_are_due_together_do_not_pass_max_units() -> None:
    specs = plan(
        step("m", map=over("params.items", concurrency=10), retry=_SLOW, on_error="continue"),
        budget=Budget(max_units=12),
    )
    done = simulate(specs, lambda _s, _u: failed(), _ITEMS).snap
    assert done.dispatched == 12
    assert done.steps[0].reason == "budget_exceeded"
    assert done.steps[0].detail == "the budget's max_units of 12 is used up (12)"
    assert done.steps[0].counts[UnitState.FAILED] == 10


def test_max_duration_counts_driven_time_and_names_itself() -> None:
    specs = plan(step("m", map=over("params.items", concurrency=1)), budget=Budget(max_duration_ms=3))
    done = simulate(specs, lambda _s, _u: ok(), _ITEMS).snap
    assert done.run.reason == "budget_exceeded"
    assert done.run.detail == "step 'm': the budget's max_duration of 0.003s is used up (0.003s)"
    assert (done.steps[0].counts[UnitState.COMPLETED], done.steps[0].counts[UnitState.NOT_RUN]) == (3, 7)


@pytest.mark.parametrize("name", ["max_units", "max_tokens", "max_cost_usd", "max_duration_ms"])
def test_work_that_crosses_a_ceiling_counts_and_only_a_step_that_would_start_more_fails(name: str) -> None:
    def answer(_step: Step, _unit: Unit) -> Outcome:
        return msgspec.structs.replace(ok(), usage=Usage(input_tokens=30_000, output_tokens=0, cost_usd=2.0))

    budget = Budget(**{name: 25_000 if name == "max_tokens" else 1})
    last = simulate(plan(step("a", prompt()), budget=budget), answer).snap
    assert (last.run.state, last.run.outcome) == (RunState.COMPLETED, "ok")
    more = simulate(plan(step("a", prompt()), step("b", prompt()), budget=budget), answer).snap
    assert [(found.state, found.reason) for found in more.steps] == [
        (StepState.COMPLETED, None),
        (StepState.FAILED, "budget_exceeded"),
    ]


def test_a_raised_ceiling_counts_instead_of_the_plans() -> None:
    specs = plan(step("m", map=over("params.items")), budget=Budget(max_units=2))
    simulation = Simulation(snapshot(specs, _ITEMS), lambda _s, _u: ok())
    simulation.add(ev.BudgetRaised(at=1, name="max_units", value=10))
    assert simulation.run().run.outcome == "ok"


def test_a_budget_that_just_suffices_fails_nothing() -> None:
    specs = plan(step("m", map=over("params.items")), budget=Budget(max_units=10))
    assert simulate(specs, lambda _s, _u: ok(), _ITEMS).snap.run.outcome == "ok"


def in_backoff(dues: list[int]) -> Snapshot:
    """Return a map all of whose units wait for another attempt."""
    specs = plan(step("m", map=over("params.items", concurrency=len(dues)), retry=_SLOW))
    snap, dispatches = begun(specs)
    reserve(snap, dispatches)
    for ordinal, due in enumerate(dues):
        end(snap, ordinal, UnitState.WAITING, due)
    for unit in list(snap.steps[0].ready):
        snap.steps[0].ready.remove(unit)
    return snap


def test_due_units_start_earliest_first_and_none_starts_twice() -> None:
    snap = in_backoff([30, 10, 20, 40, 50, 15, 12])
    spec = plan(step("m", map=over("params.items", concurrency=3), retry=_SLOW)).steps[0]
    first = dispatched(snap, spec, 45)
    assert first == [1, 6, 5]
    for ordinal in first:
        end(snap, ordinal, UnitState.COMPLETED)
    second = dispatched(snap, spec, 45)
    assert second == [2, 0, 3]
    assert snap.steps[0].backoff == [(50, 4)]


def dispatched(snap: Snapshot, spec: PlanStep, at: int) -> list[int]:
    found = startable(snap, spec, snap.steps[0], Now(at=at), run_room(snap))
    reserve(snap, found)
    return [d.unit for d in found]


def test_a_unit_that_left_backoff_out_of_turn_is_not_started_again() -> None:
    snap = in_backoff([10, 30, 20])
    spec = snap.plan.steps[0]
    reserve(snap, [Dispatch(0, 2)])
    assert dispatched(snap, spec, 45) == [0, 1]
    assert snap.steps[0].backoff == []


def test_the_next_due_moment_leaves_out_what_waits_for_a_place() -> None:
    snap = in_backoff([30, 10])
    assert next_due(snap, 5) == 10
    assert next_due(snap, 10) is None
    snap.steps[0].state = StepState.BLOCKED
    assert next_due(snap, 5) is None


def test_ready_units_come_before_those_whose_backoff_is_over() -> None:
    tries: list[int | None] = []

    def answer(_step: Step, unit: Unit) -> Outcome:
        tries.append(unit.index)
        return failed() if unit.index == 0 and unit.retries == 0 else ok()

    specs = plan(step("m", map=over("params.items", concurrency=1), retries=1))
    simulate(specs, answer, {"items": [0, 1, 2]})
    assert tries == [0, 1, 2, 0]


def test_a_probe_and_work_are_never_started_together() -> None:
    specs = plan(step("a", effects="external", probe=Command(text="ask"), map=over("params.items", concurrency=9)))
    snap, dispatches = begun(specs)
    reserve(snap, dispatches)
    for ordinal in range(9):
        end(snap, ordinal, UnitState.UNKNOWN)
    reserve(snap, [Dispatch(0, 9)])
    end(snap, 9, UnitState.UNKNOWN)
    asked = next_actions(snap, Now(at=BEGIN_MS))
    assert isinstance(asked[0], ev.UnitsAdded)
    snap.apply(asked[0])
    snap.apply(ev.UnitMoved(at=1, step=0, unit=0, state=UnitState.PENDING))
    kinds = {snap.steps[0].units[d.unit].kind for d in next_actions(snap, Now(at=BEGIN_MS)) if isinstance(d, Dispatch)}
    assert kinds == {"probe"}
