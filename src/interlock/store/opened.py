"""A journal as each thread has it open: a connection belongs to the thread that made it.

Guarantee: a thread's end closes what it had open; what one thread closes, another at work with its own does not lose.
"""

from __future__ import annotations

import threading
from pathlib import Path

from interlock.store.sqlite import SqliteStore


class Opened:
    """What one thread has open."""

    def __init__(self) -> None:
        self.reader: SqliteStore | None = None
        self.writer: SqliteStore | None = None

    def __del__(self) -> None:
        # a connection is in a circle with its statements, so that it would stay open until somebody collects these
        self.close()

    def either(self, journal: Path) -> SqliteStore | None:
        """Return what is open, else open it for reading; None where there is no journal yet."""
        if self.writer is not None:
            return self.writer
        if self.reader is None:
            self.reader = SqliteStore.open_if_any(journal)
        return self.reader

    def close(self) -> None:
        """Close both. Idempotent."""
        for store in (self.reader, self.writer):
            if store is not None:
                store.close()
        self.reader = self.writer = None


class PerThread(threading.local):
    """`here` is what the thread that looks has open."""

    def __init__(self) -> None:
        self.here = Opened()
