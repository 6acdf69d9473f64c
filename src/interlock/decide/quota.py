"""Engines whose quota is used up: what goes to them waits, and the run with it when nothing else can move."""

from __future__ import annotations

from interlock.decide.now import Now
from interlock.model import events as ev
from interlock.model.plan import Prompt
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step
from interlock.model.states import RunState, StepState


def engine_of(spec: PlanStep, kind: ev.UnitKind) -> str | None:
    """Return the engine that a unit of that kind goes to, None when it goes to none."""
    if kind == "work":
        return spec.target.engine if isinstance(spec.target, Prompt) else None
    if kind == "judge" and spec.gate is not None and spec.gate.judge is not None:
        return spec.gate.judge.engine
    return None


def is_parked(snap: Snapshot, engine: str | None, at: int) -> bool:
    """Tell whether nothing may go to the engine now."""
    if engine is None or engine not in snap.parked:
        return False
    until = snap.parked[engine]
    return until is None or until > at


def parked_steps(snap: Snapshot, at: int) -> list[tuple[Step, str]]:
    """Return the open steps whose next units wait for an engine, with that engine."""
    found = []
    for step in map(snap.steps.__getitem__, snap.open):
        if step.state not in (StepState.RUNNING, StepState.GATING, StepState.WAITING) or not step.ready:
            continue
        engine = engine_of(snap.plan.steps[step.index], step.ready[0].kind)
        if engine is not None and is_parked(snap, engine, at):
            found.append((step, engine))
    return found


def park_run(snap: Snapshot, now: Now, parked: list[tuple[Step, str]]) -> list[ev.Event]:
    """Return the events by which a run waits for quotas; `blocked` when no return is known for any of them."""
    times = [until for _, engine in parked if (until := snap.parked[engine]) is not None]
    engines = ", ".join(sorted({engine for _, engine in parked}))
    events: list[ev.Event] = [
        _moved(step, now, StepState.WAITING, "llm_quota", f"the quota of engine '{engine}' is used up")
        for step, engine in parked
        if step.state is not StepState.WAITING
    ]
    detail = f"the quota of {engines} is used up"
    if times:
        moved = ev.RunMoved(
            at=now.at,
            state=RunState.WAITING,
            reason="llm_quota",
            detail=detail,
            wait_until=min(times),
            driven_ms=now.driven_ms,
        )
    else:
        detail += ", and it is not known until when"
        moved = ev.RunMoved(
            at=now.at, state=RunState.BLOCKED, reason="llm_quota", detail=detail, driven_ms=now.driven_ms
        )
    return [*events, moved]


def unpark(snap: Snapshot, now: Now) -> list[ev.Event]:
    """Return the events by which steps go on whose engines may have quota again; an unknown return is tried now."""
    waiting = [step for step in snap.steps if step.state is StepState.WAITING]
    if not waiting:
        return []
    events: list[ev.Event] = []
    for name, until in snap.parked.items():
        if until is None:
            events.append(ev.EngineParked(at=now.at, engine=name, until=now.at))
    for step in waiting:
        engine = engine_of(snap.plan.steps[step.index], step.ready[0].kind) if step.ready else None
        if engine is None or snap.parked.get(engine) is None or not is_parked(snap, engine, now.at):
            events.append(_moved(step, now, StepState.GATING if step.asking else StepState.RUNNING))
    return events


def _moved(step: Step, now: Now, state: StepState, reason: str | None = None, detail: str = "") -> ev.StepMoved:
    return ev.StepMoved(
        at=now.at, step=step.index, state=state, reason=reason, detail=detail, round=step.round, loop=step.loop
    )
