"""Which units may start now: caps of map and run, budget, engines' quotas, and backoff that is due."""

from __future__ import annotations

import heapq
from itertools import islice, takewhile

import msgspec

from interlock.decide.budget import NO_LIMIT, affordable, ceiling, money_left, price, reservation
from interlock.decide.now import Now
from interlock.decide.quota import is_parked, parked_for
from interlock.decide.upcoming import engine_of, next_kind
from interlock.model.actions import Ahead, Dispatch
from interlock.model.events import UnitKind
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step
from interlock.model.states import StepState

MAX_CONCURRENCY = 256
MAX_WAITING = 512
"""In all lines of a step: a commit should take as long as a few hundred reservations do, however wide the map."""
_ACTIVE = (StepState.RUNNING, StepState.GATING)
_NO_LINE = Ahead(waiting=0, each=0)


class Room(msgspec.Struct):
    """What the run as a whole still allows; steps take from it in plan order."""

    attempts: int
    units: int
    tokens: int
    money: float


def run_room(snap: Snapshot, waiting: int = 0) -> Room:
    """Return how many more attempts the run may have in flight, units it may dispatch, tokens and dollars to reserve.

    A child has no more room than any of the runs above it. Its attempts that are `waiting` in line behind others take
    no place.
    """
    room = _own_room(snap, waiting)
    for above in snap.levels[1:]:
        other = _own_room(above, waiting)
        room.attempts, room.units = min(room.attempts, other.attempts), min(room.units, other.units)
        room.tokens, room.money = min(room.tokens, other.tokens), min(room.money, other.money)
    return room


def _own_room(snap: Snapshot, waiting: int) -> Room:
    limit = min(snap.plan.limits.max_concurrency or MAX_CONCURRENCY, MAX_CONCURRENCY)
    units, tokens = ceiling(snap, "max_units"), ceiling(snap, "max_tokens")
    return Room(
        limit - snap.busy + waiting,
        NO_LIMIT if units is None else int(units) - snap.dispatched,
        NO_LIMIT if tokens is None else int(tokens) - snap.tokens - snap.reserved_tokens,
        money_left(snap),
    )


def startable(snap: Snapshot, spec: PlanStep, step: Step, now: Now, room: Room) -> list[Dispatch]:
    """Take from `room` the dispatches that may begin now: ready units before those whose backoff is due.

    They are all of one kind: an executor has other places for a check or probe than for work.
    """
    kind = next_kind(step)
    if is_parked(snap, engine_of(spec, kind), now.at):
        return []
    needs, each = reservation(snap, spec, kind), price(snap, spec, kind)
    line = now.ahead.get(step.index, _NO_LINE)
    at_work = len(step.running) - len(step.held) - line.waiting
    places = width(spec, now.map_concurrency) - at_work
    if step.child and kind == "work":
        # a run takes no place itself: what it dispatches does
        return [Dispatch(step.index, ordinal) for ordinal in _ready(step, kind, now.at, places)] if places > 0 else []
    cap = min(places, room.attempts, room.tokens // needs if needs else NO_LIMIT)
    cap = min(cap, affordable(room.money, each))
    if kind == "work":
        cap = min(cap, room.units)
    found = _ready(step, kind, now.at, cap) if cap > 0 else []
    room.units -= len(found) if kind == "work" else 0
    room.attempts -= len(found)
    room.tokens -= len(found) * needs
    room.money -= len(found) * each
    dispatches = [Dispatch(step.index, ordinal) for ordinal in found]
    more = min(MAX_WAITING, line.each * (at_work + len(found))) - line.waiting
    if more > 0 and _may_wait(snap, spec, kind):
        dispatches += _in_line(step, kind, len(found), more)
    return dispatches


def _may_wait(snap: Snapshot, spec: PlanStep, kind: UnitKind) -> bool:
    """Tell whether units may be reserved before there is a place for them.

    What a driver's death leaves in line is dispatched again: nothing for an effect that must not be repeated, nor
    where dispatches are counted.
    """
    quiet = spec.effects == "internal" and spec.isolation == "none"
    return kind == "work" and spec.map is not None and quiet and not _counts_units(snap)


def _counts_units(snap: Snapshot) -> bool:
    return any(ceiling(level, "max_units") is not None for level in snap.levels)


def _in_line(step: Step, kind: UnitKind, begun: int, most: int) -> list[Dispatch]:
    """Return the ready units behind the first `begun`; what waits for its backoff never waits in line as well."""
    same = takewhile(lambda unit: unit.kind == kind, step.ready)
    return [Dispatch(step.index, unit.ordinal, ahead=True) for unit in islice(same, begun, begun + most)]


def _ready(step: Step, kind: UnitKind, at: int, most: int) -> list[int]:
    same = takewhile(lambda unit: unit.kind == kind, step.ready)
    found = [unit.ordinal for unit in islice(same, most)]
    if step.backoff and step.units[step.backoff[0][1]].kind == kind:
        found += _due(step, at, most - len(found))
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


def width(spec: PlanStep, map_concurrency: int) -> int:
    """Return how many units of the step may be under way at a time."""
    if spec.map is None:
        return MAX_CONCURRENCY
    return min(spec.map.concurrency or map_concurrency, MAX_CONCURRENCY)


def in_backoff(snap: Snapshot, at: int) -> bool:
    """Tell whether a unit waits for its next attempt and will get it without waiting for a quota."""
    active = (step for step in map(snap.steps.__getitem__, snap.open) if step.state in _ACTIVE)
    return any(step.backoff and parked_for(snap, step, at) is None for step in active)


def next_due(snap: Snapshot, after: int) -> int | None:
    """Return the earliest moment after `after` at which a unit in backoff may start.

    One that was due by then and did not start waits for a place, not for time.
    """
    active = (step for step in map(snap.steps.__getitem__, snap.open) if step.state in _ACTIVE)
    due = [step.backoff[0][0] for step in active if step.backoff and step.backoff[0][0] > after]
    parked = (until for level in snap.levels for until in level.parked.values())
    due += [until for until in parked if until is not None and until > after]
    return min(due) if due else None
