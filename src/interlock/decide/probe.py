"""External effects that may have happened: whom to ask, and what the answer means."""

from __future__ import annotations

from typing import Final

import msgspec

from interlock.decide.fate import may_retry
from interlock.decide.gate import item_part
from interlock.decide.output import Failure, extract
from interlock.model.events import Event, NewUnit, UnitMoved
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step, Unit
from interlock.model.states import Reason, UnitState

_FREE: Final = frozenset({Reason.LOST, Reason.ABORTED, Reason.LLM_QUOTA})
"""Ends that cost no retry."""


def unknown_units(step: Step) -> list[Unit]:
    """Return the step's units of unknown outcome."""
    if step.counts[UnitState.UNKNOWN] == 0:
        return []
    return [unit for unit in step.work if unit.state is UnitState.UNKNOWN]


def probes(spec: PlanStep, step: Step) -> tuple[NewUnit, ...]:
    """Return a probe unit for each unknown unit that has not been asked about since its last attempt."""
    asked = {unit.id for unit in step.units if unit.kind == "probe"}
    found: list[NewUnit] = []
    for unit in unknown_units(step):
        probe_id = _probe_id(spec, step, unit)
        if probe_id not in asked:
            ordinal = len(step.units) + len(found)
            found.append(NewUnit(ordinal, probe_id, unit.index, unit.item, unit.id, str(unit.ordinal)))
    return tuple(found)


def _probe_id(spec: PlanStep, step: Step, unit: Unit) -> str:
    """Name the question about the unit's last attempt; a reopened step asks anew what it could not learn."""
    return f"{spec.id}.probe:{item_part(unit)}~r{step.round}:a{unit.attempt}"


def answers(snap: Snapshot, spec: PlanStep, step: Step, now: int) -> list[Event]:
    """Return the moves of unknown units whose probe has answered: done with its stdout, or not done."""
    moves: list[Event] = []
    for probe in step.asked:
        if probe.kind != "probe" or probe.state is not UnitState.COMPLETED or probe.subject is None:
            continue
        unit = step.units[int(probe.subject)]
        if unit.state is UnitState.UNKNOWN and probe.id == _probe_id(spec, step, unit):
            moves.append(_answer(snap, spec, step, unit, probe, now))
    return moves


def _answer(snap: Snapshot, spec: PlanStep, step: Step, unit: Unit, probe: Unit, now: int) -> Event:
    if probe.verdict != "pass":
        return _not_done(spec, step, unit, now)
    text = msgspec.json.decode(probe.result or b"{}").get("output", "")
    found = extract(
        text.encode(), is_json=False, schema_json=spec.unit_schema_json, max_bytes=snap.plan.limits.max_result_bytes
    )
    if isinstance(found, Failure):
        return UnitMoved(
            at=now,
            step=step.index,
            unit=unit.ordinal,
            state=UnitState.FAILED,
            reason=found.reason,
            error=f"the probe says that it was done, and its output is no result: {found.error}",
        )
    return UnitMoved(
        at=now, step=step.index, unit=unit.ordinal, state=UnitState.COMPLETED, reason="probe_done", result=found.json
    )


def _not_done(spec: PlanStep, step: Step, unit: Unit, now: int) -> Event:
    """Nothing happened: a crash or an interrupt is made good freely, a failure only while retries are left."""
    reason = Reason(unit.reason or Reason.LOST)
    free = reason in _FREE or may_retry(spec.retry, reason, unit.retries - 1)
    return UnitMoved(
        at=now,
        step=step.index,
        unit=unit.ordinal,
        state=UnitState.PENDING if free else UnitState.FAILED,
        reason="probe_not_done" if free else reason,
    )
