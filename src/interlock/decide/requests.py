"""What a person asked of a run while it was driven, or while nobody drove it: the same answer both times."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from interlock.decide.approval import approve
from interlock.decide.budget import figure, lifted, written
from interlock.decide.endings import end_run
from interlock.decide.now import Now
from interlock.decide.reopen import grant
from interlock.decide.values import schema_errors
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.run import Snapshot, Step, Unit
from interlock.model.states import RunState, StepState, UnitState

_MOST: Final = 3


class Answer(msgspec.Struct, frozen=True):
    """Events to journal and what to tell the asker: `applied`, or why not."""

    events: tuple[ev.Event, ...]
    outcome: str = "applied"


def answer(snap: Snapshot, kind: str, payload: dict[str, Any], now: Now) -> Answer:
    """Answer any request but `abandon`, which ends work first, so that the loop does it."""
    if kind == "resolve":
        return _resolve(snap, payload, now)
    if kind == "raise":
        return Answer((), no) if (no := unraised(snap, payload)) else Answer(raises(payload, now))
    if kind == "loops":
        granted = grant(snap, now, payload["loops"])
        return Answer(tuple(granted)) if granted else Answer((), "no rejected step here can loop")
    if kind in ("approve", "reject"):
        events, outcome = approve(snap, payload, now, verdict="pass" if kind == "approve" else "reject")
        return Answer(tuple(events), outcome)
    return Answer((), f"this version does not know the request '{kind}'")


def unraised(snap: Snapshot, ceilings: dict[str, float]) -> str | None:
    """Say which of the named ceilings would not be raised by its new value, or return None."""
    for name, value in ceilings.items():
        tops = lifted(snap, name)
        if not tops:
            return f"the run has no {written(name)}, so there is nothing to raise"
        if value <= min(tops):
            return f"{written(name)} is {figure(name, min(tops))} already; {figure(name, value)} would not raise it"
    return None


def raises(ceilings: dict[str, float], now: Now) -> tuple[ev.Event, ...]:
    """Return the amendments of the named ceilings."""
    return tuple(
        ev.BudgetRaised(at=now.at, name=cast("ev.Ceiling", name), value=value) for name, value in ceilings.items()
    )


def _find(snap: Snapshot, unit_id: str) -> tuple[Step, Unit] | None:
    for step in snap.steps:
        for unit in step.work:
            if unit.id == unit_id:
                return step, unit
    return None


def _resolve(snap: Snapshot, payload: dict[str, Any], now: Now) -> Answer:
    found = _find(snap, payload["unit"])
    if found is None:
        return Answer((), f"no unit '{payload['unit']}' in this run{_meant(snap)}")
    step, unit = found
    if unit.state is not UnitState.UNKNOWN:
        return Answer((), f"unit '{unit.id}' is {unit.state}, not unknown")
    spec = snap.plan.steps[step.index]
    moved: ev.UnitMoved
    if payload["done"]:
        result = payload.get("result")
        errors = schema_errors(spec.unit_schema_json, result)
        if errors:
            text = "; ".join(errors)
            return Answer((), f"the result misses the step's schema: {text}; give one that fits with --result JSON")
        try:
            raw = None if result is None and spec.unit_schema_json is None else canon.dumps(result)
        except canon.NotJsonError as error:
            return Answer((), f"the result is not JSON: {error}")
        moved = _moved(step, unit, UnitState.COMPLETED, "resolved_done", now, raw)
    else:
        moved = _moved(step, unit, UnitState.PENDING, "resolved_rerun", now, None)
    return Answer((*_unblock(snap, step, now), moved))


def _meant(snap: Snapshot) -> str:
    unknown = [unit.id for step in snap.steps for unit in step.work if unit.state is UnitState.UNKNOWN]
    if not unknown:
        return ""
    more = f" and {len(unknown) - _MOST:,} more" if len(unknown) > _MOST else ""
    return f"; unknown is what became of {', '.join(unknown[:_MOST])}{more}"


def _moved(step: Step, unit: Unit, state: UnitState, reason: str, now: Now, result: bytes | None) -> ev.UnitMoved:
    return ev.UnitMoved(at=now.at, step=step.index, unit=unit.ordinal, state=state, reason=reason, result=result)


def _unblock(snap: Snapshot, step: Step, now: Now) -> list[ev.Event]:
    """Let the step go on, but for that of a run that failed, which goes on when it is reopened.

    The answer is taken there too: a fork asks for it, and what failed may do so each time before the run is ever blocked.
    """
    events: list[ev.Event] = []
    if snap.run.state is RunState.FAILED:
        return events
    if snap.run.state in (RunState.BLOCKED, RunState.WAITING):
        events.append(ev.RunMoved(at=now.at, state=RunState.ACTIVE, driven_ms=now.driven_ms, reason="resolved"))
    if step.state is StepState.BLOCKED:
        events.append(
            ev.StepMoved(at=now.at, step=step.index, state=StepState.RUNNING, round=step.round, loop=step.loop)
        )
    return events


def abandon(snap: Snapshot, now: Now) -> tuple[ev.Event, ...]:
    """Return the events that end a run whose work has ended: open steps stop, the run is `abandoned`."""
    return end_run(snap, now, RunState.ABANDONED, "abandoned", "the run was abandoned")
