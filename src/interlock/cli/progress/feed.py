"""From the loop to whoever shows progress, without ever holding the loop up.

The loop's side is one append to a bounded deque; a daemon thread drains it ten times a second. A reader that
stalls loses progress (and is told how much), one that closed its end ends the showing, never the run. The
thread reads the live snapshot; it looks only at whole values and at lists that only grow.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from interlock.model.events import Event, StepMoved
from interlock.model.run import Snapshot

_INTERVAL_S: Final = 0.1
_MOST_EVENTS: Final = 50_000


class Change(msgspec.Struct, frozen=True):
    """Events of one run in order, and its snapshot, which may be ahead of them."""

    events: Sequence[Event]
    snapshot: Snapshot


class Renderer(Protocol):
    """Shows progress somewhere. Raises OSError when its reader is gone."""

    def begin(self, snapshot: Snapshot, ended: int) -> None:
        """Show which run this is, `ended` of whose steps had ended by then; called once, before anything else."""
        ...

    def show(self, changes: Sequence[Change], snapshot: Snapshot, dropped: int) -> None:
        """Show what was committed since the last call, perhaps nothing, in `snapshot` and the runs below it.

        `dropped` events could not be kept.
        """
        ...

    def end(self) -> None:
        """Take down what stands on the screen."""
        ...


class Feed:
    """The `on_event` of a run. `close` shows what is left and waits for it."""

    def __init__(self, make: Callable[[], Renderer], *, most_events: int = _MOST_EVENTS) -> None:
        self._make = make
        self._most_events = most_events
        self._batches: deque[Change] = deque()
        self._held = 0
        self._dropped = 0
        self._snapshot: Snapshot | None = None
        self._closing = threading.Event()
        self._failed: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._ended = 0

    def __call__(self, events: Sequence[Event], snapshot: Snapshot) -> None:
        """Take a committed batch; returns at once."""
        if snapshot.above is None:
            self._snapshot = snapshot
        if self._thread is None:
            moved = {event.step for event in events if isinstance(event, StepMoved)}
            self._ended = sum(1 for step in snapshot.steps if step.ended and step.index not in moved)
            self._thread = threading.Thread(target=self._work, name="progress", daemon=True)
            self._thread.start()
        if self._failed is not None:
            return
        if self._held > self._most_events:
            self._dropped += len(events)
            return
        self._held += len(events)
        self._batches.append(Change(tuple(events), snapshot))

    @property
    def run_id(self) -> str | None:
        """The run that was begun; None before there is one."""
        return None if self._snapshot is None else self._snapshot.run.id

    def close(self) -> None:
        """Show the rest. A reader that stalls now holds up nobody but itself."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        if self._failed is not None and not isinstance(self._failed, OSError):
            raise self._failed

    def _work(self) -> None:
        try:
            self._drain()
        except BaseException as error:  # noqa: BLE001 - told by close(), in the thread that can report it
            self._failed = error
            self._batches.clear()

    def _drain(self) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        renderer = self._make()
        try:
            renderer.begin(snapshot, self._ended)
            self._show(renderer, snapshot)
        finally:
            renderer.end()

    def _show(self, renderer: Renderer, snapshot: Snapshot) -> None:
        last = False
        while not last:
            last = self._closing.wait(_INTERVAL_S)
            changes: list[Change] = []
            while self._batches:
                changes.append(self._batches.popleft())
            self._held = 0
            dropped, self._dropped = self._dropped, 0
            renderer.show(changes, self._snapshot or snapshot, dropped)
