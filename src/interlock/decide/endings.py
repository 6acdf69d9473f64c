"""How a step ends: completed, failed, or stopped because something else failed or a ceiling was reached."""

from __future__ import annotations

from interlock.decide.now import Now
from interlock.decide.reduce import Artifact, Broken, failure_of
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.actions import Action
from interlock.model.run import Snapshot, Step
from interlock.model.states import StepState


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


def stop(snap: Snapshot, step: Step, now: Now, reason: str, detail: str = "") -> list[Action]:
    """End a step whose remaining units will not run; the failure that caused it is named."""
    broken = Broken(reason, detail)
    if step.first_failure is not None and snap.plan.steps[step.index].on_error == "fail":
        broken = failure_of(step.first_failure)
    elif not detail and snap.halted is not None:
        broken = Broken(reason, f"stopped because step '{snap.steps[snap.halted].id}' failed")
    return [ev.UnitsStopped(at=now.at, step=step.index, reason=reason), fail(step, now, broken)]
