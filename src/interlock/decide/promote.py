"""From settled units to a completed step: reduce, gate, loop, complete.

The one place that says a step may advance. A rejection, or an artifact that misses its schema, runs the step's
units again with feedback while loops are left; only a prompt can loop, since nothing new can be said to the rest.
"""

from __future__ import annotations

from interlock.decide import gate
from interlock.decide.budget import exhausted
from interlock.decide.endings import block, complete, fail, stop
from interlock.decide.loops import next_loop
from interlock.decide.now import Now
from interlock.decide.reduce import Artifact, Broken, fatal, reduce_step
from interlock.decide.reuse import judged_before
from interlock.decide.schedule import Room, startable
from interlock.decide.upcoming import next_kind
from interlock.decide.worktrees import ask_merge, merge_failure, merge_unit, merges
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.actions import Action
from interlock.model.outcome import FEEDBACK_CHARS
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step
from interlock.model.states import StepState, UnitState


def promote(snap: Snapshot, spec: PlanStep, step: Step, now: Now) -> list[Action]:
    """Reduce a settled step and ask its gate, or complete it."""
    if merges(spec) and fatal(spec, step) is None:
        first = _merge(snap, spec, step, now)
        if first is not None:
            return first
    made = reduce_step(spec, step, snap.plan.limits.max_artifact_bytes)
    if isinstance(made, Broken):
        return _broken(snap, spec, step, now, made)
    return _act(snap, spec, step, now, made)


def _merge(snap: Snapshot, spec: PlanStep, step: Step, now: Now) -> list[Action] | None:
    """Ask for the merge, or say what came of one that failed; None once there is one."""
    unit = merge_unit(step)
    if unit is None:
        return stop(snap, step, now, "stopped") if snap.halted is not None else [ask_merge(step, spec, now)]
    if unit.state is not UnitState.FAILED:
        return None
    broken = merge_failure(unit)
    if broken.reason == "check_unavailable":
        return [block(step, now.at, broken.reason, broken.detail)]
    return [fail(step, now, broken)]


def gating(snap: Snapshot, spec: PlanStep, step: Step, now: Now, room: Room) -> list[Action]:
    """Go on with a gate: dispatch what it asks, or act on what was answered."""
    if step.asking:
        if snap.halted is not None:
            return [] if step.running else stop(snap, step, now, "stopped")
        over = exhausted(snap, spec, next_kind(step), now)
        if over is not None:
            return [] if step.running else stop(snap, step, now, "budget_exceeded", over)
        return [*startable(snap, spec, step, now, room)]
    return promote(snap, spec, step, now)


def _act(snap: Snapshot, spec: PlanStep, step: Step, now: Now, made: Artifact) -> list[Action]:
    judged = gate.judge(spec, step, canon.sha256(made.json or b"null"))
    if isinstance(judged, gate.Passed):
        return [complete(step, now, made)]
    if isinstance(judged, gate.Blocked):
        return [block(step, now.at, judged.reason, judged.detail)]
    if isinstance(judged, gate.Rejected):
        return _rejected(snap, spec, step, now, judged)
    if snap.halted is not None:
        return stop(snap, step, now, "stopped")
    return [_added(snap, spec, step, now, judged)]


def _rejected(snap: Snapshot, spec: PlanStep, step: Step, now: Now, judged: gate.Rejected) -> list[Action]:
    if judged.final:
        return [fail(step, now, Broken("rejected", judged.detail or "a person rejected it"))]
    if snap.can_loop(step):
        return _loop(snap, spec, step, now, judged.feedback)
    if judged.by_person:
        return [fail(step, now, Broken("rejected", judged.detail))]
    return [block(step, now.at, "gate_rejected", judged.detail)]


def _broken(snap: Snapshot, spec: PlanStep, step: Step, now: Now, made: Broken) -> list[Action]:
    if not made.misfits or not snap.can_loop(step):
        return [fail(step, now, made)]
    feedback = canon.dumps({"feedback": made.detail[:FEEDBACK_CHARS], "missing": []})
    return _loop(snap, spec, step, now, {unit.index: feedback for unit in step.work})


def _loop(snap: Snapshot, spec: PlanStep, step: Step, now: Now, feedback: dict[int | None, bytes]) -> list[Action]:
    if snap.halted not in (None, step.index):
        return stop(snap, step, now, "stopped")
    return [next_loop(snap, spec, step, now, feedback)]


def _added(snap: Snapshot, spec: PlanStep, step: Step, now: Now, asked: gate.Ask) -> ev.UnitsAdded:
    return ev.UnitsAdded(
        at=now.at,
        step=step.index,
        kind=asked.kind,
        round=step.round,
        loop=step.loop,
        state=StepState.GATING,
        units=judged_before(snap, spec, asked.kind, asked.units),
    )
