"""Where context files lie: a private folder of the driver, one file for each attempt under way.

Making and removing a file costs more than starting a small command, so a thread's next attempt takes over the file
of its last one, under a new name: what an earlier attempt left behind finds nothing at the path that it knows.
Guarantees: the path given holds exactly the content given, whatever the last attempt did to its file; folders of drivers
that were killed are removed, those of drivers of other runs stay, which a lock on each folder tells apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import Final

_PREFIX: Final = "contexts-"
_FOLDER: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW
_FRESH: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_AGAIN: Final = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_PRIVATE: Final = stat.S_IFREG | 0o600


class ContextFiles:
    """The files of one driver. Safe from any thread."""

    def __init__(self, scratch: Path, name: str) -> None:
        self._scratch = scratch
        self._folder = scratch / (_PREFIX + name)
        self._start = os.fsencode(self._folder) + b"/"
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._made = False
        self._held: int | None = None
        self._mine = threading.local()

    def put(self, content: bytes) -> bytes:
        """Return the path of a file with this content; it stands until the same thread asks again. Raises OSError."""
        self._make()
        fd = self._take_over()
        if fd < 0:
            self._mine.path = self._next_path()
            fd = os.open(self._mine.path, _FRESH, 0o600)
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(fd, left) :]
            os.ftruncate(fd, len(content))
        finally:
            os.close(fd)
        path: bytes = self._mine.path
        return path

    def _next_path(self) -> bytes:
        return self._start + b"%d.json" % next(self._numbers)

    def _take_over(self) -> int:
        """Return the thread's last file, renamed and open, if it is still the plain private file that we made."""
        last: bytes | None = getattr(self._mine, "path", None)
        if last is None:
            return -1
        path = self._next_path()
        try:
            os.rename(last, path)  # noqa: PTH104 - bytes, at half the cost
            fd = os.open(path, _AGAIN)
        except OSError:
            return -1
        found = os.fstat(fd)
        if found.st_mode != _PRIVATE or found.st_nlink != 1:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - bytes
            return -1
        self._mine.path = path
        return fd

    def _make(self) -> None:
        if self._made:
            return
        with self._lock:
            if not self._made:
                while self._held is None:
                    self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    self._held = _hold(self._folder)
                for old in self._scratch.glob(_PREFIX + "*"):
                    if old != self._folder:
                        _sweep(old)
                self._made = True

    def remove(self) -> None:
        """Remove the folder and what is left in it. Idempotent."""
        shutil.rmtree(self._folder, ignore_errors=True)
        held, self._held = self._held, None
        if held is not None:
            os.close(held)


def _hold(folder: Path) -> int | None:
    """Lock a folder of ours, None when another driver took it for an abandoned one just before and removed it."""
    try:
        fd = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return None
    # where folders can't be locked nobody sweeps either
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_SH)
    if folder.exists():
        return fd
    os.close(fd)
    return None


def _sweep(folder: Path) -> None:
    """Remove a folder of a driver that was killed."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, _FOLDER)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(fd)
