"""What the processes of a machine share of one engine's limit: one small file of locks and figures.

Byte n of the file stands for place n: who holds its lock holds the place, and the kernel frees it when the holder
dies, however it dies. The content is JSON of the lowered limit. Guarantees: a corrupt content reads as no lowered
limit; locks are of the open file (not of the process), so that two limiters of one process keep apart too.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

MAX_PLACES: Final = 256
"""No engine is asked for more at a time, limit or not."""
_WAITERS: Final = 1_000
_STATE: Final = 1_001
_FORGET_S: Final = 600.0
"""A lowered limit that nobody has touched for so long says nothing any more."""
_FLOCK: Final = "hhqqi4x"


class Lowered(msgspec.Struct, frozen=True, kw_only=True):
    """A limit below the configured one. Times are seconds of this machine's monotonic clock, shared by all processes."""

    limit: int
    changed_at: float
    cut_at: float
    answered: int = 0
    """Good answers since it was changed."""


class SharedFile:
    """One engine's file. Raises OSError where it cannot be had. Used under the lock of its owner."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # a file system without such locks says so here, not in the middle of a run
            self.wait_openly(waiting=True)
            self.wait_openly(waiting=False)
        except OSError:
            self.close()
            raise

    def take(self, place: int) -> bool:
        """Take the place if nobody else's open file has it."""
        try:
            self._lock(place, fcntl.F_WRLCK)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def give_back(self, place: int) -> None:
        """Free the place."""
        self._unlock(place)

    def taken_by_others(self) -> int:
        """Count the places that other open files hold."""
        found, start = 0, 0
        while start < MAX_PLACES:
            kind, _, first, length, _ = self._ask(start, MAX_PLACES - start)
            if kind == fcntl.F_UNLCK:
                break
            end = MAX_PLACES if length == 0 else min(MAX_PLACES, first + length)
            found += end - max(start, first)
            start = end
        return found

    def wait_openly(self, waiting: bool) -> None:  # noqa: FBT001 - the state itself is the argument
        """Say to the other processes that somebody here waits for a place, or that nobody does any more."""
        if waiting:
            self._lock(_WAITERS, fcntl.F_RDLCK)
        else:
            self._unlock(_WAITERS)

    def others_wait(self) -> bool:
        """Tell whether another process waits for a place."""
        kind, *_ = self._ask(_WAITERS, 1)
        return kind != fcntl.F_UNLCK

    def lowered(self) -> Lowered | None:
        """Return the lowered limit, if there is one that still means something."""
        try:
            found = msgspec.json.decode(os.pread(self._fd, 512, 0).rstrip(b"\0 \n") or b"null", type=Lowered | None)
        except (msgspec.DecodeError, OSError):
            return None
        if found is None or not 1 <= found.limit <= MAX_PLACES:
            return None
        # the clock starts anew with the machine: a time that lies ahead is of another life
        return found if 0 <= time.monotonic() - found.changed_at < _FORGET_S else None

    def set_lowered(self, state: Lowered | None) -> None:
        """Replace the lowered limit."""
        # blanks, not a truncation: a reader in between sees the old text, the new one, or nothing that it can read
        os.pwrite(self._fd, msgspec.json.encode(state).ljust(255) + b"\n", 0)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other process from changing the figures meanwhile."""
        self._lock(_STATE, fcntl.F_WRLCK, wait=True)
        try:
            yield
        finally:
            self._unlock(_STATE)

    def close(self) -> None:
        """Free everything. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _lock(self, at: int, kind: int, *, wait: bool = False) -> None:
        command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
        fcntl.fcntl(self._fd, command, struct.pack(_FLOCK, kind, os.SEEK_SET, at, 1, 0))

    def _unlock(self, at: int) -> None:
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, at, 1, 0))

    def _ask(self, start: int, length: int) -> tuple[int, int, int, int, int]:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        kind, whence, first, size, pid = struct.unpack(_FLOCK, fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, asked))
        return kind, whence, first, size, pid
