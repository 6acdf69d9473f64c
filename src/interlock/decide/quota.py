"""Engines whose quota is used up: what goes to them waits, and the run with it when nothing else can move.

What one run of a family learns is noted at the first of them too, and holds for all below it.
"""

from __future__ import annotations

from typing import Final

from interlock.decide.now import Now
from interlock.decide.upcoming import next_engine
from interlock.model import events as ev
from interlock.model.run import Snapshot, Step
from interlock.model.states import RunState, StepState

_PARKABLE: Final = frozenset({StepState.RUNNING, StepState.GATING, StepState.WAITING})
_PAST_MS: Final = 60_000
"""How long to leave an engine alone whose quota should have been back by now."""


def parked(snap: Snapshot, engine: str, until: int | None, at: int) -> ev.EngineParked:
    """Return the event by which an engine is left alone until its quota is back; what is known of it stays known."""
    known = snap.parked.get(engine)
    if until is not None and until <= at:
        until = at + _PAST_MS
    if known is not None and known > at:
        until = max(known, until or 0)
    return ev.EngineParked(at=at, engine=engine, until=until)


def is_parked(snap: Snapshot, engine: str | None, at: int) -> bool:
    """Tell whether nothing may go to the engine now."""
    until = 0 if engine is None else back(snap, engine)
    return until is None or until > at


def back(snap: Snapshot, engine: str) -> int | None:
    """Return when the engine is back, by what this run and those above it know: None is unknown, 0 is long ago."""
    known = [level.parked[engine] for level in snap.levels if engine in level.parked]
    times = [until for until in known if until is not None]
    return max(times, default=0) if len(times) == len(known) else None


def parked_for(snap: Snapshot, step: Step, at: int) -> str | None:
    """Return the engine without quota that the step's next unit waits for."""
    engine = next_engine(snap, step)
    return engine if is_parked(snap, engine, at) else None


def parked_steps(snap: Snapshot, at: int) -> list[tuple[Step, str]]:
    """Return the open steps whose next units wait for an engine, with that engine."""
    steps = [snap.steps[index] for index in snap.open]
    waits = [(step, parked_for(snap, step, at)) for step in steps if step.state in _PARKABLE]
    return [(step, engine) for step, engine in waits if engine is not None]


def park_steps(now: Now, parked: list[tuple[Step, str]]) -> list[ev.Event]:
    """Return the events by which steps wait for their engines."""
    return [
        _moved(step, now, StepState.WAITING, "llm_quota", f"the quota of engine '{engine}' is used up")
        for step, engine in parked
        if step.state is not StepState.WAITING
    ]


def park_run(snap: Snapshot, now: Now, parked: list[tuple[Step, str]]) -> ev.RunMoved:
    """Return the event by which a run waits for quotas, its own and its children's.

    It is `blocked` when no return is known for any of them.
    """
    held = [held for step in map(snap.steps.__getitem__, snap.open) for held in step.held.values()]
    times = [until for _, engine in parked if (until := back(snap, engine)) is not None]
    times += [one.until for one in held if one.until is not None]
    detail = f"the quota of {', '.join(sorted({engine for _, engine in parked}))} is used up"
    if not parked:
        detail = "; ".join(f"run {one.run_id}: {one.detail}" for one in held[:3])
    return ev.RunMoved(
        at=now.at,
        state=RunState.WAITING if times else RunState.BLOCKED,
        reason="llm_quota",
        detail=detail if times else f"{detail}, and it is not known until when",
        wait_until=min(times, default=None),
        driven_ms=now.driven_ms,
    )


def go_on(step: Step, now: Now) -> ev.StepMoved:
    """Return the event by which a step goes on whose engine takes work again."""
    return _moved(step, now, StepState.GATING if step.asking else StepState.RUNNING)


def unpark(snap: Snapshot, now: Now) -> list[ev.Event]:
    """Return the events by which steps go on whose engines may have quota again; an unknown return is tried now."""
    waiting = [step for step in snap.steps if step.state is StepState.WAITING and not step.held]
    engines = {step.index: next_engine(snap, step) for step in waiting}
    # what is parked here may be so for runs below
    below = set(snap.parked) if any(step.held for step in snap.steps) else set()
    unknown = sorted(name for name in {*engines.values(), *below} if name and snap.parked.get(name, 0) is None)
    tried = [ev.EngineParked(at=now.at, engine=name, until=now.at) for name in unknown]
    due = [
        go_on(step, now)
        for step in waiting
        if engines[step.index] in unknown or not is_parked(snap, engines[step.index], now.at)
    ]
    return [*tried, *due]


def _moved(step: Step, now: Now, state: StepState, reason: str | None = None, detail: str = "") -> ev.StepMoved:
    return ev.StepMoved(
        at=now.at, step=step.index, state=state, reason=reason, detail=detail, round=step.round, loop=step.loop
    )
