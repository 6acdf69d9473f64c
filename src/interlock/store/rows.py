"""From the tuples that queries select to the rows of the protocol, and a lease to its columns.

The order of columns is that of the queries in `sql/<dialect>/`, which all dialects share. Guarantee: a value of a wrong
type, as a damaged file may hold, raises msgspec.ValidationError and never reaches a decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from interlock.model.events import Answered, Origin, Usage
from interlock.model.run import Lease
from interlock.store.attempt_rows import TreeRow, UsageSeen
from interlock.store.base import ApprovalRow, AttemptRow, Census, EventRow, RequestRow, RunRow, StepRow, UnitRow

Tuple = tuple[Any, ...]
Row = TypeVar("Row", bound=msgspec.Struct)
_ORIGIN: Final = msgspec.json.Decoder(Origin)
_ROUTE: Final = msgspec.json.Decoder(tuple[str, ...])


def _checked(row: Tuple, kind: type[Row]) -> Row:
    return msgspec.convert(dict(zip(kind.__struct_fields__, row, strict=True)), kind)


def run_row(row: Tuple) -> RunRow:
    """A run."""
    return _checked(row, RunRow)


def step_row(row: Tuple) -> StepRow:
    """A step."""
    *head, stages, each, child, artifact, tagged, size, route, started_at, ended_at = row
    gate = (tuple(stages.split()), bool(each), bool(child))
    return _checked((*head, *gate, artifact, tagged, size, _ROUTE.decode(route), started_at, ended_at), StepRow)


def unit_row(row: Tuple) -> UnitRow:
    """A unit."""
    *head, origin = row
    return _checked((*head, None if origin is None else _ORIGIN.decode(origin)), UnitRow)


def attempt_row(row: Tuple) -> AttemptRow:
    """An attempt. What belongs together in its events stands together in the row, or is None as a whole."""
    *head, answered_model, session, request_id = row[:14]
    usage, place = row[14:20], row[20:]
    pid, start_ticks, boot_id, log_offset, log_length, *times = place
    answered = _struct(Answered, (session, answered_model, request_id))
    used = _struct(Usage, (*usage[:-1], bool(usage[-1])))
    process = None if pid is None else (pid, start_ticks, boot_id)
    log = None if log_offset is None else (log_offset, log_length)
    return _checked((*head, answered, used, process, log, *times), AttemptRow)


def _struct(kind: type[msgspec.Struct], values: Tuple) -> dict[str, Any] | None:
    """The fields of a value by name, or None when nothing is known."""
    known = any(value is not None and value is not False for value in values)
    return dict(zip(kind.__struct_fields__, values, strict=True)) if known else None


def tree_row(row: Tuple) -> TreeRow:
    """An attempt's worktree."""
    return _checked(row, TreeRow)


def approval_row(row: Tuple) -> ApprovalRow:
    """A person's verdict."""
    *head, override, note = row
    return _checked((*head, bool(override), note), ApprovalRow)


def session_usage(row: Tuple) -> tuple[str, Usage] | None:
    """A session and what it consumed; None where nothing of that is known."""
    session, *used = row
    values = _struct(Usage, (*used, False))
    return None if values is None else (msgspec.convert(session, str), msgspec.convert(values, Usage))


def usage_seen(row: Tuple) -> UsageSeen:
    """What one attempt used."""
    return _checked(row, UsageSeen)


def event_row(run_id: str, row: Tuple) -> EventRow:
    """An event."""
    id_, at, type_, step, unit, data = row
    return _checked((id_, run_id, at, type_, step, unit, data.encode()), EventRow)


def request_row(row: Tuple) -> RequestRow:
    """A request."""
    return _checked(row, RequestRow)


def lease(row: Tuple) -> Lease:
    """A lease as read; the run's id comes first."""
    *head, released = row
    return _checked((*head, bool(released)), Lease)


def lease_columns(value: Lease) -> Tuple:
    """A lease's columns as they are written, without the run."""
    return tuple(getattr(value, name) for name in Lease.__struct_fields__[1:])


def census(rows: Iterable[Tuple], reused: Iterable[Tuple] = ()) -> list[Census]:
    """Counts by (step, state, reason), gathered per step, with how many were taken over."""
    taken: dict[int, int] = dict(reused)
    found: dict[int, Census] = {}
    for step, state, reason, count in rows:
        if not count:
            continue
        entry = found.setdefault(step, Census(step=step, by_state={}, by_reason={}, reused=taken.get(step, 0)))
        entry.by_state[state] = entry.by_state.get(state, 0) + count
        if state == "failed":
            entry.by_reason[reason] = entry.by_reason.get(reason, 0) + count
    return list(found.values())
