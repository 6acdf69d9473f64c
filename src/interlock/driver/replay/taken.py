"""The steps that a recorded fork took as they were, taken so again: neither asked, judged nor dispatched in a replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from interlock.driver.replay.recording import Recording, TakenStep
from interlock.model import events as ev
from interlock.model.plan import Plan
from interlock.model.run import Snapshot, Step
from interlock.model.states import StepState, UnitState
from interlock.store.base import UnitRow
from interlock.store.births import NewStep


def taken_in(recording: Recording, plan: Plan) -> dict[str, TakenStep]:
    """Return what the plan has of the taken steps, by step id; not what has become another kind of step."""
    kinds = {spec.id: spec.route is None for spec in plan.steps}
    return {
        one.row.id: one
        for one in recording.taken
        if kinds.get(one.row.id) is (recording.plan.steps[one.row.step].route is None)
    }


def ungated(steps: Sequence[NewStep], taken: dict[str, TakenStep]) -> tuple[NewStep, ...]:
    """Return the rows of a new run's steps, of which the taken ones have no gate to pass."""
    return tuple(msgspec.structs.replace(one, stages=(), each=False) if one.id in taken else one for one in steps)


def take(snap: Snapshot, taken: dict[str, TakenStep], at: int) -> list[ev.Event]:
    """Return what makes the steps what they were in the record."""
    return [event for step in snap.steps if step.id in taken for event in _as_recorded(step, taken[step.id], at)]


def _as_recorded(step: Step, one: TakenStep, at: int) -> Iterator[ev.Event]:
    row = one.row
    if one.units:
        units = tuple(_ended(n, unit) for n, unit in enumerate(one.units))
        yield ev.StepStarted(at=at, step=step.index, round=1, loop=1, units=units)
    yield ev.StepMoved(
        at=at,
        step=step.index,
        state=StepState(row.state),
        reason=row.reason,
        detail=row.detail,
        artifact=one.artifact,
        artifact_hash=row.artifact_hash,
        route=row.route,
    )


def _ended(ordinal: int, row: UnitRow) -> ev.NewUnit:
    origin = row.reused or ev.Origin("", row.id, row.attempt)
    ended = ev.Reused(origin, UnitState(row.state), row.reason, None, row.result, row.left)
    return ev.NewUnit(ordinal, row.id, row.index, row.item, row.input_hash, session=row.session, reused=ended)
