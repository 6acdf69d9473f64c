"""Random plans, worlds that answer them, and the rules that every run must keep."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from interlock.decide.probe import unknown_units
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.outcome import Outcome
from interlock.model.plan import Command, Plan
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step, Unit
from interlock.model.states import (
    ATTEMPT_MOVES,
    RUN_MOVES,
    STEP_MOVES,
    UNIT_ENDED,
    UNIT_MOVES,
    AttemptState,
    Reason,
    StepState,
    UnitState,
)
from interlock.testing.build import check, failed, judged, ok, over, plan, prompt, route, step
from interlock.testing.simulate import Answer, Pick, snapshot

COMMAND_KINDS = "solo map vote route gate each external continue retry empty"
KINDS = COMMAND_KINDS + " prompt judges judged whole"
PARAMS: dict[str, Any] = {"items": ["a", 1, True], "none": [], "pick": "x"}


@st.composite
def plans(draw: st.DrawFn, *, kinds: str = KINDS) -> Plan:
    """Draw up to seven steps of the kinds, with random needs and routes."""
    count = draw(st.integers(1, 7))
    return plan(*[_step(draw, index, count, draw(st.sampled_from(kinds.split()))) for index in range(count)])


def _step(draw: st.DrawFn, index: int, count: int, kind: str) -> PlanStep:
    needs = _needs(draw, index)
    if kind == "route" and index + 1 < count:
        later = st.integers(index + 1, count - 1).map("s{}".format)
        return step(f"s{index}", needs=needs, route=route("params.pick", {"x": draw(later), "y": draw(later)}))
    made = step(f"s{index}", needs=needs, retries=2 if kind == "retry" else 0)
    return msgspec.structs.replace(made, **_shape(kind))


def _needs(draw: st.DrawFn, index: int) -> list[str] | None:
    earlier = [f"s{n}" for n in range(index)]
    return draw(st.none() | (st.lists(st.sampled_from(earlier), unique=True, max_size=3) if earlier else st.just([])))


def _shape(kind: str) -> dict[str, Any]:
    shapes: dict[str, dict[str, Any]] = {
        "map": {"map": over("params.items", concurrency=2)},
        "vote": {"map": over("params.items", vote=True)},
        "prompt": {"target": prompt(), "output_schema_json": '{"type":"string"}', "gate": judged(loops=3)},
        "judges": {"target": prompt(), "gate": judged(loops=2, asked=3)},
        "judged": {"target": prompt(), "map": over("params.items"), "gate": judged(loops=3, each=True)},
        "whole": {"target": prompt(), "map": over("params.items"), "gate": judged(loops=3)},
        "empty": {"map": over("params.none")},
        "gate": {"gate": check()},
        "each": {"map": over("params.items"), "gate": check(each=True), "on_error": "continue"},
        "external": {"map": over("params.items"), "effects": "external", "probe": Command(text="ask")},
        "continue": {"map": over("params.items", concurrency=2), "on_error": "continue"},
    }
    return shapes.get(kind, {})


def chance(seed: int, step_: Step, unit: Unit) -> int:
    """Return a number below 100 that depends on the work alone, not on when or by whom it is done."""
    key = f"{seed}/{step_.id}/{unit.id}/{unit.kind}/{unit.index}/{unit.retries}/{unit.asks}/{step_.round}"
    return zlib.crc32(key.encode()) % 100


def text_of(step_: Step, unit: Unit) -> str:
    """Return what a unit's work says when it goes well; so few words that votes can win."""
    return f"{step_.id} says {'yes' if unit.index != 1 else 'no'}"


def world(seed: int, specs: Plan, *, troubles: int = 25) -> Answer:
    """Return a world in which `troubles` of a hundred attempts fail, always the same ones."""

    def answer(step_: Step, unit: Unit) -> Outcome:
        bad = chance(seed, step_, unit) < troubles
        if unit.kind == "probe":
            return ok(text_of(step_, unit)) if seed % 2 else ok(exit_code=1)
        if unit.kind == "judge":
            return ok(
                "I can't say" if bad and seed % 5 == 0 else canon.dumps({"complete": not bad, "feedback": unit.id})
            )
        if unit.kind == "gate":
            return ok("no", exit_code=(1, 126)[chance(seed, step_, unit) % 2]) if bad else ok()
        if bad and specs.steps[step_.index].effects == "internal":
            return failed(Reason.TIMEOUT, answered=False) if seed % 3 else failed()
        if unit.kind == "work" and specs.steps[step_.index].output_schema_json:
            return ok(canon.dumps(text_of(step_, unit)) if chance(seed + 1, step_, unit) > troubles else "mumble")
        return ok(text_of(step_, unit))

    return answer


def picker(seed: int) -> Pick:
    """Return an order of ends that depends on the seed."""
    calls = iter(range(seed % 977, 10**9))
    return lambda count: zlib.crc32(str(next(calls)).encode()) % count


def legal(plan_: Plan, params: dict[str, Any], events: list[ev.Event]) -> None:
    """Assert that each event is a move that the state tables allow, and leaves the snapshot as it should be."""
    snap = snapshot(plan_, params)
    attempts: dict[str, AttemptState] = {}
    for event in events:
        before = _states(snap)
        _attempt_moves(attempts, event)
        snap.apply(event)
        _moved(before, _states(snap))
        consistent(snap)


def _states(snap: Snapshot) -> tuple[Any, dict[int, StepState], dict[tuple[int, int], UnitState]]:
    units = {(s.index, u.ordinal): u.state for s in snap.steps for u in s.units}
    return snap.run.state, {s.index: s.state for s in snap.steps}, units


def _moved(before: tuple[Any, Any, Any], after: tuple[Any, Any, Any]) -> None:
    assert before[0] == after[0] or after[0] in RUN_MOVES[before[0]], (before[0], after[0])
    for table, was, now in ((STEP_MOVES, before[1], after[1]), (UNIT_MOVES, before[2], after[2])):
        moves: Any = table
        for key, state in now.items():
            if key in was and was[key] != state:
                assert state in moves[was[key]], (key, was[key], state)


def _attempt_moves(attempts: dict[str, AttemptState], event: ev.Event) -> None:
    if isinstance(event, ev.AttemptReserved):
        assert event.dispatch not in attempts
        attempts[event.dispatch] = AttemptState.RESERVED
    elif isinstance(event, ev.AttemptFinished):
        assert event.state in ATTEMPT_MOVES[attempts[event.dispatch]]
        attempts[event.dispatch] = event.state


def consistent(snap: Snapshot) -> None:
    """Assert that all that is kept ready is what a search would find."""
    assert snap.open == [s.index for s in snap.steps if not s.ended]
    assert snap.running == sum(len(s.running) for s in snap.steps)
    for found in snap.steps:
        for state in UnitState:
            assert found.counts[state] == sum(unit.state is state for unit in found.work)
        assert {u.ordinal for u in found.running.values()} == {
            u.ordinal for u in found.units if u.state is UnitState.RUNNING
        }
        if found.state in (StepState.RUNNING, StepState.GATING, StepState.WAITING):
            current = [unit for unit in (*found.work, *found.asked) if unit.kind != "approval"]
            assert found.asking == sum(u.kind != "work" and u.state not in UNIT_ENDED for u in current)
            assert {u.ordinal for u in found.ready} == {u.ordinal for u in current if u.state is UnitState.PENDING}
            assert sorted(found.backoff) == sorted(
                (u.not_before, u.ordinal) for u in current if u.state is UnitState.WAITING
            )
        assert unknown_units(found) == [u for u in found.work if u.state is UnitState.UNKNOWN]


def promoted(snap: Snapshot) -> dict[str, tuple[str, bytes | None]]:
    """Return what each step came to."""
    return {s.id: (s.state, s.artifact) for s in snap.steps}


def completions(events: list[ev.Event]) -> set[tuple[int, int]]:
    """Return the units of which an attempt completed."""
    done = (e for e in events if isinstance(e, ev.AttemptFinished) and e.state is AttemptState.COMPLETED)
    return {(e.step, e.unit) for e in done}


def dispatches(events: list[ev.Event]) -> list[tuple[int, int]]:
    """Return the units that were dispatched, in order."""
    return [(e.step, e.unit) for e in events if isinstance(e, ev.AttemptReserved)]


def by_unit(answers: dict[str, list[Outcome]], other: Callable[[Step, Unit], Outcome] | None = None) -> Answer:
    """Answer each unit id's attempts in turn; others by `other`, else with success."""

    def answer(step_: Step, unit: Unit) -> Outcome:
        if answers.get(unit.id):
            return answers[unit.id].pop(0)
        return other(step_, unit) if other else ok()

    return answer
