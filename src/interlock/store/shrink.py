"""Giving free pages of a journal's file back to the disk, by VACUUM.

Guarantees: whoever wants to write meanwhile waits less than it takes to find the journal busy; where it can't be done
(it takes time, and room for a copy of what is left) the file stays as it is, and `Room.why` says why.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from interlock.store.connection import Connection
from interlock.store.faults import translated
from interlock.store.room import Room

_WORTH_BYTES: Final = 1024 * 1024
_WORTH_SHARE: Final = 4
"""Less than one page in so many is not worth a copy of all others: new runs take the free ones."""
_COPY_S: Final = 3.0
"""Bounds the first of three parts that take about as long each."""
_WAIT_MS: Final = 1_000
_LOOK_EACH: Final = 10_000
_MARGIN_BYTES: Final = 1024 * 1024
_NOT_NOW: Final[dict[int, str]] = {
    sqlite3.SQLITE_BUSY: "another process uses it",
    sqlite3.SQLITE_LOCKED: "another process uses it",
    sqlite3.SQLITE_INTERRUPT: "it is so large that others would have to wait",
    sqlite3.SQLITE_FULL: "the disk has no room for a copy of what is left",
}


def shrink(db: Connection, *, driven: bool) -> Room:
    """Give back what is free where that is worth it. `driven`: somebody works with the journal, and is not kept waiting."""
    if not db.path.is_file():
        return Room()
    with translated(db.path):
        page, pages, free = (_pragma(db, name) for name in ("page_size", "page_count", "freelist_count"))
        if free * page < _WORTH_BYTES or free * _WORTH_SHARE < pages:
            return Room(free_bytes=free * page)
        before = _size(db.path)
        why = "a run is driven" if driven else _vacuum(db, (pages - free) * page, before)
        left = _pragma(db, "freelist_count") * page
        return Room(given_back_bytes=max(0, before - _size(db.path)), free_bytes=left, why=why)


def _vacuum(db: Connection, kept: int, size: int) -> str:
    """Copy what is kept aside and back, and cut the file; return why that was not done."""
    # the copy, and what it comes back by: the WAL, or a rollback journal with what was there
    wal = db.raw.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    disk = os.statvfs(db.path.parent)
    if disk.f_bavail * disk.f_frsize < kept + (kept if wal else size) + _MARGIN_BYTES:
        return _NOT_NOW[sqlite3.SQLITE_FULL]
    until = time.monotonic() + _COPY_S
    with _patient(db):
        db.raw.set_progress_handler(lambda: time.monotonic() > until, _LOOK_EACH)
        try:
            db.raw.execute("VACUUM")
            db.raw.set_progress_handler(None, 0)
            busy = db.raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            # the file is cut when the last of them ends
            return _NOT_NOW[sqlite3.SQLITE_BUSY] if busy else ""
        except sqlite3.OperationalError as error:
            why = _NOT_NOW.get(error.sqlite_errorcode & 0xFF)
            if why is None:
                raise
            return why
        finally:
            db.raw.set_progress_handler(None, 0)


@contextmanager
def _patient(db: Connection) -> Iterator[None]:
    """Wait for others for a moment only, and copy to a file: the memory may be smaller than the journal."""
    wait = _pragma(db, "busy_timeout")
    db.raw.execute(f"PRAGMA busy_timeout = {_WAIT_MS}")
    db.raw.execute("PRAGMA temp_store = FILE")
    try:
        yield
    finally:
        db.raw.execute("PRAGMA temp_store = MEMORY")
        db.raw.execute(f"PRAGMA busy_timeout = {wait}")


def _pragma(db: Connection, name: str) -> int:
    return int(db.raw.execute(f"PRAGMA {name}").fetchone()[0])


def _size(path: Path) -> int:
    """Return what the journal takes of the disk, with the file beside it."""
    beside = path.with_name(path.name + "-wal")
    return path.stat().st_size + (beside.stat().st_size if beside.exists() else 0)
