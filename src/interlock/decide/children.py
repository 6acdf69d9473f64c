"""Child runs as their parent's units: what they are given, and what their ends and stops mean to the parent.

Guarantees: a child's params are resolved once, when its run is born; what a child came to is an outcome like any
other, so retries, `on_error` and schemas hold for it unchanged; a parent never counts a child that cannot move as work
under way.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from interlock.decide.now import Now
from interlock.decide.values import UnresolvedError, betrays, lookup, schema_errors, walk
from interlock.model import events as ev
from interlock.model.outcome import Outcome
from interlock.model.plan import Binding, Child, Plan, Reference
from interlock.model.run import Snapshot, Step, Unit
from interlock.model.states import Reason, RunState, StepState, UnitState
from interlock.model.unit import Held

DEGRADED: Final = "degraded"
BLOCKED = "child_blocked"
"""Why a step is blocked whose child runs cannot move."""


def plan_of(plan: Plan, child: Child) -> Plan:
    """Return an embedded plan as one that stands by itself: in its parent's project, with its own children."""
    bare = plan.children[child.plan]
    needed: dict[str, Plan] = {}
    left = [bare]
    while left:
        for step in left.pop().steps:
            if isinstance(step.target, Child) and step.target.plan not in needed:
                needed[step.target.plan] = plan.children[step.target.plan]
                left.append(needed[step.target.plan])
    children = dict(sorted(needed.items()))
    return replace(bare, project=plan.project, uncommitted=plan.uncommitted, children=children)


def params_of(snap: Snapshot, target: Child, item_json: bytes | None) -> dict[str, Any]:
    """Return the child's params: what `with` gives, over their defaults. Raises UnresolvedError."""
    item = None if item_json is None else msgspec.json.decode(item_json)
    given = {binding.name: _value(snap, binding, item) for binding in target.bindings}
    found: dict[str, Any] = {}
    for param in snap.plan.children[target.plan].params:
        if param.name in given:
            errors = schema_errors(param.schema_json, given[param.name])
            if errors:
                told = "; ".join(errors)
                said = "the value does not fit its schema" if param.secret or betrays(snap, told) else told
                raise UnresolvedError(f"param '{param.name}' of {target.path}: {said}")
            found[param.name] = given[param.name]
        elif param.default_json is not None:
            found[param.name] = msgspec.json.decode(param.default_json)
    return found


def _value(snap: Snapshot, binding: Binding, item: object) -> Any:  # noqa: ANN401 - any JSON value
    value = msgspec.json.decode(binding.value_json)
    for hole in binding.holes:
        found = walk(hole.ref, item) if hole.ref.root == "item" else lookup(snap, hole.ref)
        value = _filled(value, hole.at, found)
    return value


def _filled(value: Any, at: tuple[str | int, ...], found: object) -> Any:  # noqa: ANN401 - any JSON value
    if not at:
        return found
    value[at[0]] = _filled(value[at[0]], at[1:], found)
    return value


def references(target: object) -> dict[str, Reference]:
    """Return what a target's `with` refers to outside of the item, by the references as written."""
    if not isinstance(target, Child):
        return {}
    holes = [hole.ref for binding in target.bindings for hole in binding.holes]
    return {ref.text: ref for ref in holes if ref.root != "item"}


def ended(parent: Unit, child: Snapshot, at: int, stopped: Reason | None = None) -> Outcome:
    """Return what an ended child run is to its parent's unit; its result is that of its last step that was not skipped."""
    run = child.run
    outcome = Outcome(dispatch=parent.dispatch or "", status="failed", ended_at=at)
    if run.state is RunState.ABANDONED:
        return replace(outcome, status="aborted", error=f"run {run.id} was abandoned")
    if run.state is not RunState.COMPLETED:
        return replace(outcome, reason=stopped or Reason.CHILD_FAILED, error=f"run {run.id}: {run.detail}")
    done = [step for step in child.steps if step.state is StepState.COMPLETED]
    artifact = (done[-1].artifact if done else None) or b"null"
    most = child.plan.limits.max_result_bytes
    if len(artifact) > most:
        limit = f"the limit is {most:,} (max_result_bytes of [limits])"
        error = f"the result of run {run.id} has {len(artifact):,} bytes; {limit}"
        return replace(outcome, reason=Reason.OUTPUT_TOO_LARGE, error=error)
    return replace(outcome, status="ok", output=artifact, is_json=True, error=_shortfall(child))


def _shortfall(child: Snapshot) -> str:
    """Say what a completed child is short of; nothing where all of it succeeded."""
    if child.run.outcome != DEGRADED:
        return ""
    failed, not_run = (
        sum(step.counts[state] for step in child.steps) for state in (UnitState.FAILED, UnitState.NOT_RUN)
    )
    below = sum(len(degraded(step)) for step in child.steps)
    counts = {"failed": failed, "not run": not_run, "degraded below": below}
    return f"run {child.run.id} is degraded: " + ", ".join(f"{n:,} {what}" for what, n in counts.items() if n)


def degraded(step: Step) -> list[Unit]:
    """Return the child runs of a step that completed without all that was to be done in them."""
    return [unit for unit in step.work if is_degraded(unit)] if step.child else []


def is_degraded(unit: Unit) -> bool:
    """Tell whether a child run completed degraded: it says what it is short of, or a fork took it so."""
    return unit.state is UnitState.COMPLETED and (unit.error != "" or unit.reason == DEGRADED)


def held(child: Snapshot) -> Held | None:
    """Return that the child cannot move by itself, None while it can."""
    run = child.run
    if run.state not in (RunState.BLOCKED, RunState.WAITING):
        return None
    return Held(run_id=run.id, reason=run.reason, detail=run.detail, until=run.wait_until)


def park(step: Step, now: Now) -> ev.StepMoved:
    """Return the event by which a step waits for its child runs, of which none can move."""
    blocked = [one for one in step.held.values() if one.until is None]
    told = "; ".join(f"run {one.run_id}: {one.detail}" for one in (blocked or [*step.held.values()])[:3])
    state = StepState.BLOCKED if blocked else StepState.WAITING
    reason = BLOCKED if blocked else "child_waiting"
    return ev.StepMoved(
        at=now.at, step=step.index, state=state, reason=reason, detail=told, round=step.round, loop=step.loop
    )


def blocker(step: Step) -> str | None:
    """Return why the first child run that holds the step up is blocked."""
    reasons = [one.reason for one in step.held.values() if one.until is None]
    return reasons[0] if step.reason == BLOCKED and reasons else None


def go_on(snap: Snapshot, step: Step, now: Now) -> list[ev.Event]:
    """Return the events by which a run goes on with a step of which a child run moves again."""
    events: list[ev.Event] = []
    if snap.run.state in (RunState.BLOCKED, RunState.WAITING):
        events.append(
            ev.RunMoved(at=now.at, state=RunState.ACTIVE, driven_ms=now.driven_ms, reason=f"was {snap.run.state}")
        )
    if step.state in (StepState.BLOCKED, StepState.WAITING):
        running = StepState.RUNNING
        events.append(ev.StepMoved(at=now.at, step=step.index, state=running, round=step.round, loop=step.loop))
    return events
