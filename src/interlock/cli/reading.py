"""Gathering a run's rows from the store for the views."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Final

import msgspec

from interlock.cli.hiding import Hide, hide_of
from interlock.cli.text import compact
from interlock.driver.standing import first_open, standing
from interlock.errors import JournalCorruptError
from interlock.model.states import RUN_ENDED, RunState, StepState, UnitState
from interlock.store.base import RunRow, Store, UnitRow
from interlock.views.advice import (
    Asked,
    Gate,
    Next,
    in_another_folder,
    next_commands,
    of_the_original,
    with_the_whole,
)
from interlock.views.events import Name
from interlock.views.facts import PlanFacts, plan_facts
from interlock.views.status import RunRows, status_view
from interlock.views.units import effective
from interlock.views.values import value

if TYPE_CHECKING:
    from interlock.app import App

FactsOf = Callable[[str, str], PlanFacts]
_PREVIEW_CHARACTERS: Final = 200
_PREVIEW_FROM_BYTES: Final = 16 * 1024 * 1024
"""An artifact above this is named, not read: `status` answers at once."""


def read_run(store: Store, run_id: str) -> RunRows:
    """Read what `status` is made of, at one moment of a run that may go on meanwhile."""
    with store.view():
        row = store.run(run_id)
        facts = facts_of(store)
        return RunRows(
            run=row,
            lease=store.read_lease(run_id),
            facts=facts(run_id, row.plan_hash),
            hide=hide_in(store, row, facts),
            steps=store.steps(run_id),
            census=store.census(run_id),
            spent=store.spent(run_id),
            approvals=store.approvals(run_id),
            notices=store.notices(run_id),
            children=store.children(run_id),
        )


def read_next(app: App, rows: RunRows, *, live: bool = False) -> list[Next]:
    """What a person can type next where he stands."""
    found = _next_in_its_folder(app.store, rows, live=live)
    project = rows.facts.project
    if not project.root or not found:
        return found
    where = standing(app.project.root, project.root, project.id)
    if where == "here":
        return found
    if where == "moved":
        return in_another_folder(rows.run, found, project.root, first_open(rows.steps))
    return of_the_original(rows.run, project.root)


def _next_in_its_folder(store: Store, rows: RunRows, *, live: bool = False, most: int = 3) -> list[Next]:
    """What moves the run on, of it and of at most `most` child runs that hold it up.

    Below a run that has ended nobody is asked anything until that is reopened.
    """
    if rows.run.state not in RUN_ENDED and (ended := _ended_above(store, rows.run)) is not None:
        return [with_the_whole(ended)]
    failed = any(census.by_state.get(UnitState.FAILED) for census in rows.census)
    own = next_commands(rows.run, rows.steps, rows.facts, read_asked(store, rows), live=live, failed=failed)
    found: list[Next] = []
    if rows.run.state == RunState.COMPLETED:
        told = [row for row in rows.children if row.outcome == "degraded"]
    else:
        told = [row for row in rows.children if row.state == RunState.BLOCKED and rows.run.state not in RUN_ENDED]
    for row in told[:most]:
        found += _next_in_its_folder(store, read_run(store, row.id), live=live, most=most)
    return list(dict.fromkeys([*found, *own]))


def _ended_above(store: Store, run: RunRow) -> RunRow | None:
    """Return the run above it that has ended, the first of them all."""
    ended = None
    while run.parent is not None:
        run = store.run(run.parent)
        ended = run if run.state in RUN_ENDED else ended
    return ended


def read_previews(store: Store, rows: RunRows) -> dict[int, str | JournalCorruptError]:
    """Read how artifacts begin that lie in files, or what is wrong with them."""
    previews: dict[int, str | JournalCorruptError] = {}
    for step in rows.steps:
        if step.artifact is None and step.artifact_size is not None and step.artifact_size < _PREVIEW_FROM_BYTES:
            try:
                artifact = store.artifact(rows.run.id, step.step) or b""
            except JournalCorruptError as error:
                previews[step.step] = error
                continue
            previews[step.step] = artifact[: _PREVIEW_CHARACTERS * 4].decode("utf-8", "ignore")[:_PREVIEW_CHARACTERS]
    return previews


def read_status(store: Store, run_id: str) -> dict[str, object]:
    """The status object of a run."""
    rows = read_run(store, run_id)
    return status_view(rows, read_previews(store, rows))


def read_asked(store: Store, rows: RunRows, most: int = 3) -> Asked:
    """What of the run waits for a person, at most `most` units a step."""
    unknown: dict[int, tuple[str, ...]] = {}
    approvals: dict[int, tuple[Gate, ...]] = {}
    more: dict[int, int] = {}
    hide = rows.hide
    for step in rows.steps:
        if step.state not in (StepState.BLOCKED, StepState.FAILED):
            continue
        found = store.units(rows.run.id, step=step.step, state=UnitState.UNKNOWN, limit=most)
        unknown[step.step] = tuple(unit.id for unit in found)
        if step.state == StepState.FAILED:
            continue
        pending = store.units(rows.run.id, step=step.step, state=UnitState.PENDING)
        waiting = [
            _gate(hidden(unit, hide))
            for unit in pending
            if unit.kind == "approval" and (unit.round, unit.loop) == (step.round, step.loop)
        ]
        approvals[step.step] = tuple(waiting[:most])
        more[step.step] = max(0, len(waiting) - most)
    return Asked(unknown=unknown, approvals=approvals, more=more)


def hidden(unit: UnitRow, hide: Hide) -> UnitRow:
    """Return the unit with an item that may be shown."""
    item = None if unit.item is None else hide(unit.item)
    return unit if item == unit.item else msgspec.structs.replace(unit, item=item)


def _gate(unit: UnitRow) -> Gate:
    return Gate(unit.id, None if unit.item is None else compact(unit.item.decode("utf-8", "replace"), 40))


def read_failures(store: Store, run_id: str, most: int) -> list[UnitRow]:
    """The first failed units that count."""
    found: list[UnitRow] = []
    for unit in read_effective(store, run_id, state="failed"):
        found.append(unit)
        if len(found) == most:
            break
    return found


def read_effective(
    store: Store, run_id: str, *, step: int | None = None, state: str | None = None
) -> Iterator[UnitRow]:
    """Stream the work units that count, of one step or all, in one state or any."""
    for row in store.steps(run_id):
        if step is not None and row.step != step:
            continue
        # of a step that was done once every row counts, so the store may choose by state
        chosen = state if row.round == 1 and row.loop == 1 else None
        units = effective([row], partial(_units_of, store, run_id, chosen))
        yield from (unit for unit in units if state is None or unit.state == state)


def _units_of(store: Store, run_id: str, state: str | None, step: int) -> Iterator[UnitRow]:
    return store.units(run_id, step=step, state=state)


def namer(store: Store, run_id: str) -> Name:
    """A function from step index and unit ordinal to their ids; units are read a step at a time, once."""
    ids = [row.id for row in store.steps(run_id)]

    @lru_cache(maxsize=4)
    def units(step: int, known: int) -> list[str]:
        del known
        return [unit.id for unit in store.units(run_id, step=step)]

    return _Names(ids, units).name


class _Names:
    def __init__(self, steps: list[str], units: Callable[[int, int], list[str]]) -> None:
        self._steps = steps
        self._units = units
        self._born: dict[int, int] = {}

    def name(self, step: int, unit: int | None) -> tuple[str | None, str | None]:
        step_id = self._steps[step] if step < len(self._steps) else None
        if unit is None:
            return step_id, None
        known = self._units(step, self._born.get(step, 0))
        if unit >= len(known):
            # units may have been born since they were read
            self._born[step] = unit
            known = self._units(step, unit)
        return step_id, known[unit] if unit < len(known) else None


def hide_in(store: Store, run: RunRow, facts: FactsOf) -> Hide:
    """Return what hides what the run's params and those of the runs above it hold that looks like a secret."""
    levels = [run]
    while levels[-1].parent is not None:
        levels.append(store.run(levels[-1].parent))
    return hide_of((facts(row.id, row.plan_hash).secrets, value(row.params_json) or {}) for row in levels)


def stopping_of(app: App) -> Callable[[RunRow], bool]:
    """A function that tells whether a run's driver was asked to abandon it, or those above it, and has not yet."""

    @cache
    def asked(family: str) -> bool:
        return app.driven(family) and any(request.kind == "abandon" for request in app.store.requests(family))

    return lambda run: run.state not in RUN_ENDED and asked(run.family)


def facts_of(store: Store) -> FactsOf:
    """A function from run id and plan hash to the plan's facts; runs of one plan share the reading."""
    known: dict[str, PlanFacts] = {}

    def facts(run_id: str, plan_hash: str) -> PlanFacts:
        if plan_hash not in known:
            known[plan_hash] = plan_facts(store.plan(run_id)[1])
        return known[plan_hash]

    return facts
