"""Whose a dispatch in the log is: unit and attempt, learned from the journal, again when a new one turns up."""

from __future__ import annotations

import msgspec

from interlock.model.states import UnitState
from interlock.store.base import Store, UnitRow


class Named(msgspec.Struct, frozen=True):
    """The unit and attempt of a dispatch; nothing is known of one whose reservation is not read yet."""

    unit: str | None
    step: str | None
    attempt: int | None

    def is_of(self, name: str) -> bool:
        """Tell whether it is the unit or the step of that name."""
        return name in {self.unit, self.step}


_NOBODY = Named(None, None, None)


class Attempts:
    """Maps dispatch ids of one run and of those below it, whose units have the unit that they are before their names."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._steps: dict[str, list[str]] = {}
        self._known: dict[str, Named] = {}
        self._units: set[str] = set()
        self._learn_run(run_id, "", None)

    def _learn_run(self, run_id: str, before: str, state: UnitState | None) -> None:
        if run_id not in self._steps:
            self._steps[run_id] = [row.id for row in self._store.steps(run_id)]
        for unit in self._store.units(run_id, state=state):
            self._learn(run_id, before, unit)
        for child in self._store.children(run_id):
            self._learn_run(child.id, f"{before}{child.parent_unit}/", state)

    def named(self, dispatch: str) -> Named:
        """Whose it is."""
        if dispatch not in self._known:
            # begun since: it runs still, or has ended by now
            for state in (UnitState.RUNNING, None):
                self._learn_run(self._run_id, "", state)
                if dispatch in self._known:
                    break
            self._known.setdefault(dispatch, _NOBODY)
        return self._known[dispatch]

    def covers(self, name: str) -> bool:
        """Tell whether the run has a unit or a step of that name."""
        return name in self._steps[self._run_id] or name in self._units

    def is_unit(self, name: str | None) -> bool:
        """Tell whether `name` is one unit, or a step that has but one."""
        return name in self._units

    def _learn(self, run_id: str, before: str, unit: UnitRow) -> None:
        name = before + unit.id
        self._units.add(name)
        if unit.dispatch is None or unit.dispatch in self._known:
            return
        # what a child run says is said by the step that it is a unit of
        step = before.partition(":")[0] or self._steps[run_id][unit.step]
        self._known[unit.dispatch] = Named(name, step, unit.attempt)
        if unit.attempt > 1:
            for attempt in self._store.attempts(run_id, unit.step, unit.ordinal):
                self._known[attempt.dispatch] = Named(name, step, attempt.number)
