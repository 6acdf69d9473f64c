"""An event as one object of the contract, the same from the journal and from a run under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from interlock.model import events as ev
from interlock.store.base import EventRow
from interlock.store.meta import ENCODERS, TYPES
from interlock.views.values import SCHEMA, rfc3339, value

Name = Callable[[int, int | None], tuple[str | None, str | None]]
"""From step index and unit ordinal to their ids; None where there is none."""
_TIMES: Final = frozenset({"not_before", "started_at", "until", "wait_until"})


def _event(kind: str, at_ms: int, step: str | None, unit: str | None) -> dict[str, Any]:
    return {"schema": SCHEMA, "type": kind, "at": rfc3339(at_ms), "step": step, "unit": unit}


def _rest(data: dict[str, Any], head: dict[str, Any]) -> dict[str, Any]:
    """What the event says beyond its head; the journal's times are epoch milliseconds."""
    return {
        key: rfc3339(entry) if key in _TIMES and isinstance(entry, int) else entry
        for key, entry in data.items()
        if key not in head
    }


def event_row_view(row: EventRow, name: Name) -> dict[str, Any]:
    """An event of the journal."""
    step, unit = name(row.step, row.unit) if row.step is not None else (None, None)
    head = _event(row.type, row.at, step, unit)
    data = value(row.data)
    return {**head, "id": row.id, "run": row.run_id, **(_rest(data, head) if isinstance(data, dict) else {})}


def live_event_view(event: ev.Event, run_id: str, name: Name) -> dict[str, Any]:
    """An event that was committed this moment: what the journal holds of it, but for the id it got there."""
    index, ordinal = getattr(event, "step", None), getattr(event, "unit", None)
    step, unit = name(index, ordinal) if index is not None else (None, None)
    head = _event(TYPES[type(event)], event.at, step, unit)
    rest = _rest(msgspec.json.decode(ENCODERS[type(event)](event)), head)
    if isinstance(event, ev.StepStarted | ev.UnitsAdded):
        rest["units"] = len(event.units)
    return {**head, "run": run_id, **rest}
