"""From the tuples that queries select to the rows of the protocol, and a lease to its columns.

The order of columns is that of the queries in `sql/<dialect>/`, which all dialects share.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from interlock.model.events import LogSpan, Process
from interlock.model.run import Lease
from interlock.store.base import AttemptRow, Census, EventRow, RequestRow, RunRow, StepRow, UnitRow

Tuple = tuple[Any, ...]
_ROUTE: Final = msgspec.json.Decoder(tuple[str, ...])
_RUN: Final = RunRow.__struct_fields__
_UNIT: Final = UnitRow.__struct_fields__


def run_row(row: Tuple) -> RunRow:
    """A run."""
    return RunRow(**dict(zip(_RUN, row, strict=True)))


def step_row(row: Tuple) -> StepRow:
    """A step."""
    fields = dict(zip(StepRow.__struct_fields__, row, strict=True))
    fields["route"] = _ROUTE.decode(fields["route"])
    return StepRow(**fields)


def unit_row(row: Tuple) -> UnitRow:
    """A unit."""
    return UnitRow(**dict(zip(_UNIT, row, strict=True)))


class _AttemptColumns(NamedTuple):
    step: int
    unit: int
    number: int
    dispatch: str
    state: str
    reason: str | None
    error: str
    exit_code: int | None
    pid: int | None
    start_ticks: int | None
    boot_id: str | None
    log_offset: int | None
    log_length: int | None
    reserved_at: int
    started_at: int | None
    ended_at: int | None


def attempt_row(row: Tuple) -> AttemptRow:
    """An attempt."""
    c = _AttemptColumns(*row)
    known = c.pid is not None and c.start_ticks is not None and c.boot_id is not None
    logged = c.log_offset is not None and c.log_length is not None
    return AttemptRow(
        step=c.step,
        unit=c.unit,
        number=c.number,
        dispatch=c.dispatch,
        state=c.state,
        reason=c.reason,
        error=c.error,
        exit_code=c.exit_code,
        process=Process(c.pid, c.start_ticks, c.boot_id) if known else None,  # type: ignore[arg-type]
        log=LogSpan(c.log_offset, c.log_length) if logged else None,  # type: ignore[arg-type]
        reserved_at=c.reserved_at,
        started_at=c.started_at,
        ended_at=c.ended_at,
    )


def event_row(run_id: str, row: Tuple) -> EventRow:
    """An event."""
    id_, at, type_, step, unit, data = row
    return EventRow(id=id_, run_id=run_id, at=at, type=type_, step=step, unit=unit, data=data.encode())


def request_row(row: Tuple) -> RequestRow:
    """A request."""
    return RequestRow(**dict(zip(RequestRow.__struct_fields__, row, strict=True)))


def lease(row: Tuple) -> Lease:
    """A lease as read; the run's id comes first."""
    fields = dict(zip(Lease.__struct_fields__, row, strict=True))
    fields["released"] = bool(fields["released"])
    return Lease(**fields)


def lease_columns(value: Lease) -> Tuple:
    """A lease's columns as they are written, without the run."""
    return tuple(getattr(value, name) for name in Lease.__struct_fields__[1:])


def census(rows: Iterable[Tuple]) -> list[Census]:
    """Counts by (step, state, reason), gathered per step."""
    found: dict[int, Census] = {}
    for step, state, reason, count in rows:
        if not count:
            continue
        entry = found.setdefault(step, Census(step=step, by_state={}, by_reason={}))
        entry.by_state[state] = entry.by_state.get(state, 0) + count
        if state == "failed":
            entry.by_reason[reason] = entry.by_reason.get(reason, 0) + count
    return list(found.values())


def attempt_rows(rows: Iterable[Tuple]) -> list[AttemptRow]:
    """Attempts."""
    return [attempt_row(row) for row in rows]
