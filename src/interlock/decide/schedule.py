"""Which units may start now: caps of map and run, budget, and backoff that is due."""

from __future__ import annotations

import heapq
from itertools import islice, takewhile

import msgspec

from interlock.model.actions import Dispatch
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step
from interlock.model.states import StepState

MAX_CONCURRENCY = 256


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The moment of a decision and the host's limits. Times in milliseconds."""

    at: int
    driven_ms: int = 0
    map_concurrency: int = 4
    """Of a map that names none: `min(16, max(4, 2 * cores))`."""


def ceiling(snap: Snapshot, name: str) -> float | None:
    """Return a budget ceiling with its amendments."""
    if name in snap.raised:
        return snap.raised[name]
    value: float | None = getattr(snap.plan.budget, name)
    return value


def exhausted(snap: Snapshot, now: Now) -> str | None:
    """Name the ceiling that forbids another dispatch, with figures, or None."""
    used = {
        "max_units": snap.dispatched,
        "max_duration_ms": now.driven_ms,
        "max_tokens": snap.tokens,
        "max_cost_usd": snap.cost_usd,
    }
    for name, spent in used.items():
        top = ceiling(snap, name)
        if top is not None and spent >= top:
            return f"the budget's {name} of {top:g} is used up ({spent:g})"
    return None


class Room(msgspec.Struct):
    """What the run as a whole still allows; steps take from it in plan order."""

    attempts: int
    units: int


def run_room(snap: Snapshot) -> Room:
    """Return how many more attempts the run may have in flight, and how many more units it may dispatch."""
    limit = min(snap.plan.limits.max_concurrency or MAX_CONCURRENCY, MAX_CONCURRENCY)
    top = ceiling(snap, "max_units")
    return Room(limit - snap.running, MAX_CONCURRENCY if top is None else int(top) - snap.dispatched)


def startable(spec: PlanStep, step: Step, now: Now, room: Room) -> list[Dispatch]:
    """Take from `room` the dispatches that may begin now: ready units before those whose backoff is due.

    They are all of one kind: an executor has other places for a check or probe than for work.
    """
    kind = step.ready[0].kind if step.ready else "work"
    cap = min(_cap(spec, now) - len(step.running), room.attempts)
    if kind == "work":
        cap = min(cap, room.units)
    if cap <= 0:
        return []
    same = takewhile(lambda unit: unit.kind == kind, step.ready)
    found = [Dispatch(step.index, unit.ordinal) for unit in islice(same, cap)]
    if kind == "work":
        found += [Dispatch(step.index, ordinal) for ordinal in _due(step, now.at, cap - len(found))]
        room.units -= len(found)
    room.attempts -= len(found)
    return found


def _due(step: Step, at: int, most: int) -> list[int]:
    """Return up to `most` due ordinals, earliest first, looking only at the part of the heap that is due.

    The order matters: what is reserved in it always leaves the heap from its top.
    """
    backoff = step.backoff
    found: list[int] = []
    edge = [(backoff[0], 0)] if backoff else []
    while edge and len(found) < most:
        entry, place = heapq.heappop(edge)
        if entry[0] > at:
            break
        if step.units[entry[1]].waits_until(entry[0]):
            found.append(entry[1])
        for child in range(2 * place + 1, min(2 * place + 3, len(backoff))):
            heapq.heappush(edge, (backoff[child], child))
    return found


def _cap(spec: PlanStep, now: Now) -> int:
    if spec.map is None:
        return MAX_CONCURRENCY
    return min(spec.map.concurrency or now.map_concurrency, MAX_CONCURRENCY)


def in_backoff(snap: Snapshot) -> bool:
    """Tell whether a unit waits for its next attempt and will get it."""
    return any(snap.steps[i].backoff and snap.steps[i].state is StepState.RUNNING for i in snap.open)


def next_due(snap: Snapshot, after: int) -> int | None:
    """Return the earliest moment after `after` at which a unit in backoff may start.

    One that was due by then and did not start waits for a place, not for time.
    """
    running = (step for step in map(snap.steps.__getitem__, snap.open) if step.state is StepState.RUNNING)
    due = [step.backoff[0][0] for step in running if step.backoff and step.backoff[0][0] > after]
    return min(due) if due else None
