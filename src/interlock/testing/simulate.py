"""The engine without time, store or processes: pure decisions carried out on a snapshot.

`simulate` does what the loop does - ask what is next, reserve, take an end, record it - with answers from a
function. A run can begin anew or go on from a prefix of another's events, as a driver does after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from interlock.decide.budget import reservation
from interlock.decide.next import next_actions
from interlock.decide.now import Now
from interlock.decide.outcome import record
from interlock.decide.reopen import close_lost, go_on
from interlock.decide.schedule import next_due
from interlock.decide.upcoming import engine_of
from interlock.model import events as ev
from interlock.model.actions import Dispatch
from interlock.model.outcome import Outcome
from interlock.model.plan import Plan
from interlock.model.run import RunInfo, Snapshot, Step, Unit
from interlock.model.states import RunState

Answer = Callable[[Step, Unit], Outcome]
Pick = Callable[[int], int]
"""Of that many attempts in flight, which ends next."""

BEGIN_MS = 1_000_000


def snapshot(plan: Plan, params: dict[str, Any] | None = None, events: Sequence[ev.Event] = ()) -> Snapshot:
    """Return a run's snapshot after `events`."""
    snap = Snapshot(plan, RunInfo(id="run", params=params or {}))
    snap.apply_all(events)
    return snap


class Simulation:
    """One driver of one run. `events` is all that it journaled, `prefix` not included."""

    def __init__(self, snap: Snapshot, answer: Answer, pick: Pick = lambda _count: 0) -> None:
        self.snap = snap
        self.events: list[ev.Event] = []
        self.at = BEGIN_MS
        self._answer = answer
        self._pick = pick
        self._inflight: list[tuple[Step, Unit]] = [
            (step, unit) for step in snap.steps for unit in step.running.values()
        ]

    def take_over(self) -> None:
        """Close what a dead driver left and ask again what was unavailable, as `interlock run RUN` does."""
        self.add(*close_lost(self.snap, self.now()))
        self._inflight = []
        self.add(*go_on(self.snap, self.now()))

    def add(self, *events: ev.Event) -> None:
        """Journal and apply."""
        for event in events:
            self.snap.apply(event)
            self.events.append(event)

    def now(self) -> Now:
        """The moment, at which nothing took any time."""
        return Now(at=self.at, driven_ms=self.at - BEGIN_MS)

    def run(self) -> Snapshot:
        """Go on until the run is not active any more."""
        while self.turn():
            pass
        return self.snap

    def turn(self) -> bool:
        """Do all that may happen now, then let one attempt end or time pass. False when the run has stopped."""
        actions = next_actions(self.snap, self.now())
        while actions:
            for action in actions:
                self.act(action)
            actions = next_actions(self.snap, self.now())
        if self.snap.run.state is not RunState.ACTIVE:
            return False
        if self._inflight:
            self._end_one()
        else:
            self._pass_time()
        return True

    def act(self, action: ev.Event | Dispatch) -> None:
        """Journal an event, or reserve an attempt."""
        if not isinstance(action, Dispatch):
            self.add(action)
            return
        step = self.snap.steps[action.step]
        unit = step.units[action.unit]
        number = unit.attempt + 1
        spec = self.snap.plan.steps[step.index]
        reserved = ev.AttemptReserved(
            at=self.at,
            step=step.index,
            unit=unit.ordinal,
            number=number,
            dispatch=f"{step.id}.{unit.ordinal}.{number}",
            engine=engine_of(spec, unit.kind),
            reserve_tokens=reservation(self.snap, spec, unit.kind),
        )
        self.add(reserved)
        self._inflight.append((step, unit))

    def _end_one(self) -> None:
        step, unit = self._inflight.pop(self._pick(len(self._inflight)))
        self.at += 1
        told = msgspec.structs.replace(self._answer(step, unit), dispatch=unit.dispatch or "", ended_at=self.at)
        self.add(*record(self.snap, step, unit, told, self.at))

    def _pass_time(self) -> None:
        due = next_due(self.snap, self.at)
        if due is None:
            raise RuntimeError("the run is active, but nothing runs and nothing is due")
        self.at = due


def simulate(
    plan: Plan,
    answer: Answer,
    params: dict[str, Any] | None = None,
    *,
    pick: Pick = lambda _count: 0,
    prefix: Sequence[ev.Event] = (),
) -> Simulation:
    """Drive a run to where nothing can move: a new one, or one whose driver died after `prefix`."""
    simulation = Simulation(snapshot(plan, params, prefix), answer, pick)
    if prefix:
        simulation.at = max(BEGIN_MS, *(event.at for event in prefix))
        simulation.take_over()
    simulation.run()
    return simulation
