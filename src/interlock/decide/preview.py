"""What a run would do, before anything is spent: which units would run, which are reused, and why."""

from __future__ import annotations

from typing import Literal

import msgspec

from interlock.decide.reopen import ASKED_AGAIN
from interlock.decide.values import UnresolvedError
from interlock.decide.work import work_units
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step, Unit
from interlock.model.states import StepState, UnitState


class UnitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One unit, and why."""

    id: str
    action: Literal["run", "reuse", "ask", "skip"]
    why: str


class StepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One step. `units` is None where the work list is not known before an earlier step has run."""

    id: str
    action: Literal["run", "reuse", "ask", "decide", "skip"]
    why: str
    units: tuple[UnitPlan, ...] | None = None
    person: bool = False
    """Nothing is asked of it before a person has acted."""


def preview(snap: Snapshot) -> tuple[StepPlan, ...]:
    """Say for each step and unit what going on from `snap` would do. Nothing is changed."""
    return tuple(_step(snap, snap.plan.steps[step.index], step) for step in snap.steps)


def _step(snap: Snapshot, spec: PlanStep, step: Step) -> StepPlan:
    if step.state is StepState.SKIPPED:
        return StepPlan(id=spec.id, action="skip", why="a route chose otherwise", units=())
    if spec.route is not None and step.state is not StepState.COMPLETED:
        return StepPlan(id=spec.id, action="decide", why=f"by {spec.route.input.text}", units=())
    if step.work or step.state is StepState.COMPLETED:
        return _begun(spec, step)
    why = "needs " + ", ".join(spec.needs) if spec.needs else "needs nothing"
    if spec.routers:
        why += "; if chosen by " + ", ".join(spec.routers)
    return StepPlan(id=spec.id, action="run", why=why, units=_fresh(snap, spec))


def _begun(spec: PlanStep, step: Step) -> StepPlan:
    units = tuple(_unit(unit) for unit in step.work)
    if step.state is StepState.COMPLETED:
        # what failed under `on_error: continue` is part of the artifact that stands
        left = tuple(msgspec.structs.replace(unit, action="skip") if unit.action == "run" else unit for unit in units)
        return StepPlan(id=spec.id, action="reuse", why="completed", units=left)
    if step.state is StepState.BLOCKED:
        person = step.reason not in ASKED_AGAIN
        again = "a person must act" if person else "asked again"
        return StepPlan(id=spec.id, action="ask", why=f"{step.reason}: {again}", units=units, person=person)
    return StepPlan(id=spec.id, action="run", why=f"was {step.state}", units=units)


def _unit(unit: Unit) -> UnitPlan:
    unit_id, state, attempt, reason = unit.id, unit.state, unit.attempt, unit.reason
    if state is UnitState.COMPLETED:
        origin = unit.origin
        done = f"completed in attempt {attempt}" if origin is None else f"taken over from run {origin.run}"
        return UnitPlan(id=unit_id, action="reuse", why=done)
    if state is UnitState.UNKNOWN:
        return UnitPlan(id=unit_id, action="ask", why="its effect may or may not have happened")
    if attempt == 0 and state is not UnitState.FAILED:
        return UnitPlan(id=unit_id, action="run", why="never ran")
    # one that a fork took over has failed without an attempt of its own
    why = state + (f" after attempt {attempt}" if attempt else "") + (f" ({reason})" if reason else "")
    return UnitPlan(id=unit_id, action="run", why=why)


def _fresh(snap: Snapshot, spec: PlanStep) -> tuple[UnitPlan, ...] | None:
    if spec.map is None:
        return (UnitPlan(id=f"{spec.id}:solo", action="run", why="new"),)
    if spec.map.over.root == "steps" and snap.by_id[spec.map.over.name].state is not StepState.COMPLETED:
        return None
    try:
        return tuple(UnitPlan(id=unit.id, action="run", why="new") for unit in work_units(snap, spec))
    except UnresolvedError:
        return None
