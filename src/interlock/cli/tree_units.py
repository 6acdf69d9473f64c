"""Whose the worktrees are that a listing shows: their units, as far as the journal knows them.

Guarantee: what is kept is listed also when the journal is gone or can't be read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

from interlock.app import App
from interlock.cli.reading import facts_of, hidden, hide_in
from interlock.decide.worktrees import safe_name
from interlock.errors import InterlockError
from interlock.store.base import UnitRow
from interlock.views.values import value


def units_of(app: App, runs: Collection[str]) -> dict[tuple[str, str], UnitRow]:
    """Return the units of these runs by run and by the name of their worktrees' folder."""
    found: dict[tuple[str, str], UnitRow] = {}
    for run in runs:
        with contextlib.suppress(InterlockError):
            hide = hide_in(app.store, app.store.run(run), facts_of(app.store))
            found |= {(run, safe_name(unit.id)): hidden(unit, hide) for unit in app.store.units(run)}
    return found


def named(unit: UnitRow | None) -> dict[str, Any]:
    """Return what programs are told of the unit, null where the journal does not know it."""
    if unit is None:
        return {"id": None, "index": None, "item": None}
    return {"id": unit.id, "index": unit.index, "item": value(unit.item)}
