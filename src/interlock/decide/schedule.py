"""Which units may start now: caps of map and run, budget, and backoff that is due."""

from __future__ import annotations

from itertools import islice

import msgspec

from interlock.model.actions import Dispatch
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step

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


def startable(snap: Snapshot, spec: PlanStep, step: Step, now: Now, room: int) -> list[Dispatch]:
    """Return the dispatches that caps and `room` allow now, ready units before those whose backoff is due."""
    cap = min(_cap(spec, now) - len(step.running), room)
    if step.ready and step.ready[0].kind == "work":
        cap = min(cap, _units_left(snap))
    if cap <= 0:
        return []
    found = [Dispatch(step.index, unit.ordinal) for unit in islice(step.ready, cap)]
    if len(found) < cap and step.backoff:
        found += [Dispatch(step.index, ordinal) for ordinal in _due(step.backoff, now.at, cap - len(found))]
    return found


def _units_left(snap: Snapshot) -> int:
    top = ceiling(snap, "max_units")
    return MAX_CONCURRENCY if top is None else int(top) - snap.dispatched


def _due(backoff: list[tuple[int, int]], at: int, most: int) -> list[int]:
    """Return up to `most` due ordinals, looking only at the part of the heap that is due."""
    found: list[int] = []
    places = [0]
    while places and len(found) < most:
        place = places.pop()
        if place < len(backoff) and backoff[place][0] <= at:
            found.append(backoff[place][1])
            places += (2 * place + 1, 2 * place + 2)
    return found


def run_room(snap: Snapshot) -> int:
    """Return how many more attempts the run may have in flight."""
    top = snap.plan.limits.max_concurrency or MAX_CONCURRENCY
    return min(top, MAX_CONCURRENCY) - snap.running


def _cap(spec: PlanStep, now: Now) -> int:
    if spec.map is None:
        return MAX_CONCURRENCY
    return min(spec.map.concurrency or now.map_concurrency, MAX_CONCURRENCY)


def next_due(snap: Snapshot) -> int | None:
    """Return the earliest moment at which a unit in backoff may start."""
    due = [snap.steps[i].backoff[0][0] for i in snap.open if snap.steps[i].backoff]
    return min(due) if due else None
