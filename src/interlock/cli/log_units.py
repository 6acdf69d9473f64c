"""Whose a dispatch in the log is: unit and attempt, learned from the journal, again when a new one turns up."""

from __future__ import annotations

from typing import NamedTuple

from interlock.model.states import UnitState
from interlock.store.base import Store, UnitRow


class Named(NamedTuple):
    """The unit and attempt of a dispatch; nothing is known of one whose reservation is not read yet."""

    unit: str | None
    step: str | None
    attempt: int | None


_NOBODY = Named(None, None, None)


class Attempts:
    """Maps dispatch ids of one run."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._steps = [row.id for row in store.steps(run_id)]
        self._known: dict[str, Named] = {}
        self._units: set[str] = set()
        for unit in store.units(run_id):
            self._learn(unit)

    def named(self, dispatch: str) -> Named:
        """Whose it is."""
        if dispatch not in self._known:
            # begun since: it runs still, or has ended by now
            for state in (UnitState.RUNNING, None):
                for unit in self._store.units(self._run_id, state=state):
                    self._learn(unit)
                if dispatch in self._known:
                    break
            self._known.setdefault(dispatch, _NOBODY)
        return self._known[dispatch]

    def covers(self, name: str) -> bool:
        """Tell whether the run has a unit or a step of that name."""
        return name in self._steps or name in self._units

    def is_unit(self, name: str | None) -> bool:
        """Tell whether `name` is one unit, or a step that has but one."""
        return name in self._units

    def _learn(self, unit: UnitRow) -> None:
        self._units.add(unit.id)
        if unit.dispatch is None or unit.dispatch in self._known:
            return
        step = self._steps[unit.step]
        self._known[unit.dispatch] = Named(unit.id, step, unit.attempt)
        if unit.attempt > 1:
            for attempt in self._store.attempts(self._run_id, unit.step, unit.ordinal):
                self._known[attempt.dispatch] = Named(unit.id, step, attempt.number)
