"""How a step ends: completed, failed, or stopped because something else failed; and how a run is ended from outside."""

from __future__ import annotations

from typing import Literal

from interlock.decide.now import Now
from interlock.decide.reduce import Artifact, Broken, failure_of
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.actions import Action
from interlock.model.run import Snapshot, Step
from interlock.model.states import RunState, StepState


def complete(step: Step, now: Now, made: Artifact) -> ev.StepMoved:
    """Return the completion; the store refuses it unless the gate passed exactly this artifact."""
    return ev.StepMoved(
        at=now.at,
        step=step.index,
        state=StepState.COMPLETED,
        artifact=made.json,
        artifact_hash=canon.sha256(made.json or b"null"),
        round=step.round,
        loop=step.loop,
    )


def fail(step: Step, now: Now, broken: Broken) -> ev.StepMoved:
    """Return the step's failure."""
    return ev.StepMoved(
        at=now.at,
        step=step.index,
        state=StepState.FAILED,
        reason=broken.reason,
        detail=broken.detail,
        round=step.round,
        loop=step.loop,
    )


def block(step: Step, at: int, reason: str, detail: str) -> ev.StepMoved:
    """Return the event by which a step waits for somebody to do something."""
    return ev.StepMoved(
        at=at,
        step=step.index,
        state=StepState.BLOCKED,
        reason=reason,
        detail=detail,
        round=step.round,
        loop=step.loop,
    )


def stop(snap: Snapshot, step: Step, now: Now, reason: str, detail: str = "") -> list[Action]:
    """End a step whose remaining units will not run; the failure that caused it is named."""
    broken = Broken(reason, detail)
    if step.first_failure is not None and snap.plan.steps[step.index].on_error == "fail":
        broken = failure_of(step.first_failure)
    elif not detail and snap.halted is not None:
        broken = Broken(reason, f"stopped because step '{snap.steps[snap.halted].id}' failed")
    return [ev.UnitsStopped(at=now.at, step=step.index, reason=reason), fail(step, now, broken)]


def end_run(
    snap: Snapshot, now: Now, state: Literal[RunState.ABANDONED, RunState.FAILED], reason: str, detail: str
) -> tuple[ev.Event, ...]:
    """Return the events that end a run whose work has ended: its open steps stop."""
    events: list[ev.Event] = []
    for index in snap.open:
        step = snap.steps[index]
        if step.state is StepState.PENDING:
            continue
        events.append(ev.UnitsStopped(at=now.at, step=index, reason=reason))
        events.append(fail(step, now, Broken(reason, detail)))
    moved = ev.RunMoved(
        at=now.at,
        state=state,
        reason=reason,
        detail=detail,
        outcome="abandoned" if state is RunState.ABANDONED else "failed",
        driven_ms=now.driven_ms,
    )
    if events and snap.run.state is not RunState.ACTIVE:
        # steps change only in an active run
        activated = ev.RunMoved(at=now.at, state=RunState.ACTIVE, reason=f"ending: {reason}", driven_ms=now.driven_ms)
        return (activated, *events, moved)
    return (*events, moved)
