"""Progress for programs: every committed event as one line of JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from interlock.cli.progress.feed import Change
from interlock.model.run import Snapshot
from interlock.views.events import live_event_view
from interlock.views.values import SCHEMA


class NdjsonRenderer:
    """Writes lines through `write`, which may block or raise OSError."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write

    def begin(self, snapshot: Snapshot, ended: int) -> None:
        """Say which run follows."""
        self._line(
            {
                "schema": SCHEMA,
                "type": "run_driven",
                "run": snapshot.run.id,
                "workflow": snapshot.plan.source,
                "steps_ended": ended,
            }
        )

    def show(self, changes: Sequence[Change], snapshot: Snapshot, dropped: int) -> None:
        """Write the events, all in one go; those of child runs have their own run's id."""
        encode = msgspec.json.encode
        lines = [
            encode(live_event_view(event, change.snapshot.run.id, partial(_name, change.snapshot))) + b"\n"
            for change in changes
            for event in change.events
        ]
        if lines:
            self._write(b"".join(lines))
        if dropped:
            self._line({"schema": SCHEMA, "type": "events_dropped", "run": snapshot.run.id, "count": dropped})

    def end(self) -> None:
        """Nothing stands on the screen."""

    def _line(self, value: dict[str, Any]) -> None:
        self._write(msgspec.json.encode(value) + b"\n")


def _name(snapshot: Snapshot, step: int, unit: int | None) -> tuple[str | None, str | None]:
    known = snapshot.steps[step]
    return known.id, None if unit is None else known.units[unit].id
