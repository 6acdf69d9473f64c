"""Forks of simulated runs: what a run left, indexed for another plan."""

from __future__ import annotations

from typing import Any

from interlock.decide.reuse import Done, index
from interlock.model import events as ev
from interlock.model.plan import Plan
from interlock.model.reuse import Reuse
from interlock.model.run import Snapshot, Unit
from interlock.testing.simulate import Answer, Simulation, snapshot


class Past:
    """A simulated run, looked at as a fork's driver looks at the journal."""

    def __init__(self, done: Simulation) -> None:
        self.snap: Snapshot = done.snap
        started = [event for event in done.events if isinstance(event, ev.StepStarted | ev.UnitsAdded)]
        self._born = {(event.step, unit.ordinal): unit for event in started for unit in event.units}

    def input_hash(self, step_id: str, unit: Unit) -> str:
        """The recorded hash of a unit's input."""
        return self._born[self.snap.by_id[step_id].index, unit.ordinal].input_hash

    def done(self, step_id: str, unit: Unit) -> Done:
        """The unit with its hash and where it was done."""
        origin = unit.origin or ev.Origin(self.snap.run.id, unit.id, unit.attempt)
        return Done(step_id, unit, self.input_hash(step_id, unit), origin)

    def index(self) -> Reuse:
        """All that may be taken over."""
        return index(self.snap, [self.done(step.id, unit) for step in self.snap.steps for unit in step.units])


def fork(past: Past, plan: Plan, answer: Answer, params: dict[str, Any] | None = None) -> Simulation:
    """Drive a fork to where nothing can move."""
    snap = snapshot(plan, past.snap.run.params if params is None else params)
    snap.reuse = past.index()
    made = Simulation(snap, answer)
    made.run()
    return made


def taken(simulation: Simulation) -> list[str]:
    """The ids of the units that were taken over."""
    return [unit.id for step in simulation.snap.steps for unit in step.units if unit.origin is not None]
