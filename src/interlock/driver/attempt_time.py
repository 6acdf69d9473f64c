"""How long a child run had been driven when its parent's attempt began, which earlier drivers may have begun."""

from __future__ import annotations

import msgspec

from interlock.model.run import Unit
from interlock.model.states import RunState
from interlock.store.base import Store


class _Moved(msgspec.Struct, frozen=True):
    state: str
    reason: str | None = None
    driven_ms: int = 0


_REOPENED = frozenset({f"was {RunState.FAILED}", f"was {RunState.ABANDONED}"})


def began_at_ms(store: Store, unit: Unit, run_id: str | None) -> int:
    """Return the run's driven time at which the unit's open attempt began: its birth, or when it was last reopened."""
    if run_id is None or (unit.attempt <= 1 and unit.round == 1):
        return 0
    moves = (msgspec.json.decode(row.data, type=_Moved) for row in store.events(run_id) if row.type == "run_moved")
    reopened = [move.driven_ms for move in moves if move.state == RunState.ACTIVE and move.reason in _REOPENED]
    return reopened[-1] if reopened else 0
