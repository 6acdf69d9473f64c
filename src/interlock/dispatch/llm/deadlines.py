"""Ends calls whose time is up: one thread for all of them, started by the first that has a limit.

The clock is monotonic and stands still while the machine sleeps. Guarantee: `over` is called at most once for a
watch, and never after it was taken off.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_JOIN_S: Final = 10.0


class _Watch:
    def __init__(self, over: Callable[[], None]) -> None:
        self.over: Callable[[], None] | None = over


class Deadlines:
    """The times by which things have to end. Safe from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, _Watch]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def within(self, seconds: float | None, over: Callable[[], None]) -> Iterator[None]:
        """Call `over`, from another thread, when the body has not ended in time."""
        if seconds is None:
            yield
            return
        watch = _Watch(over)
        self._put(time.monotonic() + seconds, watch)
        try:
            yield
        finally:
            with self._changed:
                watch.over = None

    def _put(self, at: float, watch: _Watch) -> None:
        with self._changed:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._work, name="llm-deadlines", daemon=True)
                self._thread.start()
            heapq.heappush(self._due, (at, next(self._numbers), watch))
            if self._due[0][2] is watch:
                self._changed.notify()

    def _work(self) -> None:
        with self._changed:
            while not self._closed:
                while self._due and self._due[0][2].over is None:
                    heapq.heappop(self._due)
                left = self._due[0][0] - time.monotonic() if self._due else None
                if left is not None and left <= 0:
                    over, self._due[0][2].over = self._due[0][2].over, None
                    if over is not None:
                        over()
                else:
                    self._changed.wait(left)

    def close(self) -> None:
        """End the thread. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_JOIN_S)
