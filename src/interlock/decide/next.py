"""next_actions: the table of contents of the engine.

Given what the journal says, what may happen now? A list of events to journal, or of dispatches, or nothing.
Called until it has nothing more to say; then the loop waits. It never asks which driver, which executor or
whether the run was resumed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from interlock.decide import probe
from interlock.decide.budget import exhausted
from interlock.decide.children import blocker, degraded, park
from interlock.decide.endings import fail, stop
from interlock.decide.now import Now
from interlock.decide.promote import gating, promote
from interlock.decide.quota import go_on, park_run, park_steps, parked_for, parked_steps
from interlock.decide.reduce import Broken
from interlock.decide.reuse import taken_over
from interlock.decide.route import Ready, choose, readiness
from interlock.decide.schedule import Room, in_backoff, run_room, startable
from interlock.decide.upcoming import next_kind
from interlock.decide.values import UnresolvedError
from interlock.decide.work import work_units
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.actions import Action, Dispatch
from interlock.model.plan import Route
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step
from interlock.model.states import RunState, StepState, UnitState


def next_actions(snap: Snapshot, now: Now) -> list[Action]:
    """Return what may happen now. Events come alone, dispatches only when no event is due."""
    if snap.run.state is not RunState.ACTIVE:
        return []
    dispatches: list[Action] = []
    room = run_room(snap, sum(line.waiting for line in now.ahead.values()))
    for index in snap.open:
        step = snap.steps[index]
        act = _BY_STATE.get(step.state)
        if act is None:
            continue
        actions = act(snap, snap.plan.steps[index], step, now, room)
        if actions and type(actions[0]) is not Dispatch:
            return actions
        dispatches.extend(actions)
    if dispatches or snap.running > snap.held or _starved(snap):
        return dispatches
    return _end_of_run(snap, now)


def _starved(snap: Snapshot) -> bool:
    """Tell whether a child could start something, had others of its family not taken the place or the budget for it."""
    if snap.above is None or not snap.levels[-1].busy:
        return False
    return any(step.ready for step in map(snap.steps.__getitem__, snap.open) if step.state in _WORKING)


def _pending(snap: Snapshot, spec: PlanStep, step: Step, now: Now, _room: Room) -> list[Action]:
    if snap.halted is not None:
        return []
    ready = readiness(snap, spec)
    if ready is Ready.NOT_YET:
        return []
    if ready is Ready.SKIP:
        return [ev.StepMoved(at=now.at, step=step.index, state=StepState.SKIPPED, reason="not_chosen")]
    return _route(snap, spec.route, step, now) if spec.route else _begin(snap, spec, step, now)


def _route(snap: Snapshot, route: Route, step: Step, now: Now) -> list[Action]:
    chosen = choose(snap, route)
    if isinstance(chosen, Broken):
        return [fail(step, now, chosen)]
    artifact = canon.dumps(chosen)
    return [
        ev.StepMoved(
            at=now.at,
            step=step.index,
            state=StepState.COMPLETED,
            artifact=artifact,
            artifact_hash=canon.sha256(artifact),
            route=(chosen,),
        )
    ]


def _begin(snap: Snapshot, spec: PlanStep, step: Step, now: Now) -> list[Action]:
    try:
        units = work_units(snap, spec)
    except UnresolvedError as error:
        return [fail(step, now, Broken("dispatch_error", str(error)))]
    return [ev.StepStarted(at=now.at, step=step.index, round=step.round, loop=1, units=taken_over(snap, spec, units))]


def _running(snap: Snapshot, spec: PlanStep, step: Step, now: Now, room: Room) -> list[Action]:
    if step.settled:
        return promote(snap, spec, step, now)
    moves: list[Action] = [*probe.answers(snap, spec, step, now.at)]
    if moves:
        return moves
    if snap.halted is not None:
        return _stop(snap, step, now, "stopped")
    if step.ready or step.backoff:
        return _dispatch(snap, spec, step, now, room)
    if step.running:
        return [] if step.moving else [park(step, now)]
    return _ask_about_unknown(spec, step, now)


def _stop(snap: Snapshot, step: Step, now: Now, reason: str, detail: str = "") -> list[Action]:
    """End a step of which nothing more shall start; child runs that wait for a person are left to wait."""
    if step.moving:
        return []
    if not step.held:
        return stop(snap, step, now, reason, detail)
    stopped = [ev.UnitsStopped(at=now.at, step=step.index, reason=reason)] if step.ready or step.backoff else []
    return [*stopped, park(step, now)]


def _dispatch(snap: Snapshot, spec: PlanStep, step: Step, now: Now, room: Room) -> list[Action]:
    over = exhausted(snap, spec, next_kind(step), now)
    if over is not None:
        return _stop(snap, step, now, "budget_exceeded", over)
    return [*startable(snap, spec, step, now, room)]


def _waiting(snap: Snapshot, _spec: PlanStep, step: Step, now: Now, _room: Room) -> list[Action]:
    """A step that waits for a quota goes on by itself when it is back, or ends with the run."""
    if step.held:
        return []
    if snap.halted is not None:
        return stop(snap, step, now, "stopped")
    return [] if parked_for(snap, step, now.at) else [go_on(step, now)]


def _ask_about_unknown(spec: PlanStep, step: Step, now: Now) -> list[Action]:
    asked = probe.probes(spec, step) if spec.probe is not None else ()
    if asked:
        return [
            ev.UnitsAdded(
                at=now.at,
                step=step.index,
                kind="probe",
                round=step.round,
                loop=step.loop,
                state=StepState.RUNNING,
                units=asked,
            )
        ]
    failed = [unit for unit in step.asked if unit.kind == "probe" and unit.state is UnitState.FAILED]
    units = ", ".join(unit.id for unit in probe.unknown_units(step)[:5])
    reason = "probe_unavailable" if failed else "effect_unknown"
    detail = f"it is not known whether these took effect: {units}"
    if failed:
        detail += f"; the probe gave no answer: {failed[-1].error}"
    return [ev.StepMoved(at=now.at, step=step.index, state=StepState.BLOCKED, reason=reason, detail=detail)]


def _end_of_run(snap: Snapshot, now: Now) -> list[Action]:
    """Derive the run's state once nothing can move: failed before blocked before waiting, else completed."""
    states = {step.state for step in snap.steps}
    if in_backoff(snap, now.at):
        return []
    parked = parked_steps(snap, now.at)
    if StepState.FAILED in states:
        return [_end(snap, now, RunState.FAILED, StepState.FAILED, "failed")]
    waits = park_steps(now, parked)
    if StepState.BLOCKED in states:
        return [*waits, _end(snap, now, RunState.BLOCKED, StepState.BLOCKED, None)]
    if parked or StepState.WAITING in states:
        return [*waits, park_run(snap, now, parked)]
    if snap.open:
        # cannot happen unless a decision above is wrong: say so instead of spinning
        stuck = ", ".join(snap.steps[index].id for index in snap.open)
        raise RuntimeError(f"nothing can move, yet these steps are open: {stuck}")
    return [ev.RunMoved(at=now.at, state=RunState.COMPLETED, outcome=_outcome(snap), driven_ms=now.driven_ms)]


def _outcome(snap: Snapshot) -> Literal["ok", "degraded"]:
    bad = sum(step.counts[UnitState.FAILED] + step.counts[UnitState.NOT_RUN] for step in snap.steps)
    return "degraded" if bad or any(map(degraded, snap.steps)) else "ok"


def _end(snap: Snapshot, now: Now, state: RunState, cause: StepState, outcome: Literal["failed"] | None) -> ev.RunMoved:
    if state is RunState.FAILED and snap.halted is not None:
        step = snap.steps[snap.halted]
    else:
        step = next(step for step in snap.steps if step.state is cause)
    return ev.RunMoved(
        at=now.at,
        state=state,
        reason=blocker(step) or step.reason,
        detail=f"step '{step.id}': {step.detail or step.reason}",
        outcome=outcome,
        driven_ms=now.driven_ms,
    )


_WORKING: Final = frozenset({StepState.RUNNING, StepState.GATING})
_BY_STATE: Final[dict[StepState, Callable[[Snapshot, PlanStep, Step, Now, Room], list[Action]]]] = {
    StepState.PENDING: _pending,
    StepState.RUNNING: _running,
    StepState.GATING: gating,
    StepState.WAITING: _waiting,
}
