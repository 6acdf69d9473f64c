"""One transaction's worth of changes to one run: the fence's answer, the statements and the event rows.

Guarantee: event ids of a run grow without gaps in the order in which changes were made. A `careful` batch goes
row by row where a quick one would stop at the first finish that came too late (`ShortError`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from interlock.errors import StoreError
from interlock.model.states import RunState
from interlock.store.meta import ENCODERS, TYPES


class RuleError(StoreError):
    """The journal refuses a change that its rules do not allow."""


class ShortError(Exception):
    """Fewer rows than events: some attempt was closed by somebody else. Asks for a careful batch."""


class Batch:
    """The changes of one transaction on one run. `state` follows the run's row."""

    def __init__(
        self,
        raw: sqlite3.Connection,
        queries: Mapping[str, str],
        run_seq: int,
        state: RunState,
        *,
        last_event: int,
        careful: bool,
    ) -> None:
        self.raw = raw
        self.queries = queries
        self.seq = run_seq
        self.state = state
        self.careful = careful
        self.refused: list[str] = []
        self._next = last_event + 1
        self._rows: list[tuple[int, str, int | None, int | None, str]] = []

    def many(self, query: str, rows: Iterable[tuple[object, ...]]) -> int:
        """Run one statement for all rows; return how many rows of the table it touched."""
        return self.raw.executemany(self.queries[query], rows).rowcount

    def one(self, query: str, *values: object) -> int:
        """Run one statement; return how many rows it touched."""
        return self.raw.execute(self.queries[query], values).rowcount

    def row(self, query: str, *values: object) -> Any:  # noqa: ANN401 - a row is what the query selects
        """The first row of an answer, or None."""
        return self.raw.execute(self.queries[query], values).fetchone()

    def log(self, rows: Sequence[tuple[int, str, int | None, int | None, str]]) -> None:
        """Append event rows of (at, type, step, unit, data); they are written with `flush`."""
        self._rows += rows

    def flush(self) -> None:
        """Write the event rows in one go. Belongs at the end of each batch."""
        seq, first = self.seq, self._next
        self._next = first + len(self._rows)
        self.many("insert_event", [(seq, first + i, *row) for i, row in enumerate(self._rows)])
        self._rows.clear()

    def log_event(self, event: Any) -> None:  # noqa: ANN401 - any event: not all have step and unit
        """Append the row of one event."""
        kind = type(event)
        step, unit = getattr(event, "step", None), getattr(event, "unit", None)
        self.log([(event.at, TYPES[kind], step, unit, ENCODERS[kind](event))])

    def need_active(self, what: str) -> None:
        """Refuse work on a run that is not active."""
        if self.state is not RunState.ACTIVE:
            raise RuleError("run-not-active", f"{what} is refused: the run is {self.state.value}")
