"""Where context files lie: a private folder of the driver, one file for each attempt under way.

Making and removing a file costs more than starting a small command, so an attempt takes over the file of one that is
over, under a new name: what an earlier attempt left behind finds nothing at the path that it knows.
Guarantees: the path given holds exactly the content given, whatever the last attempt did to its file; folders of drivers
that were killed are removed, those of drivers of other runs stay, which a lock on each folder tells apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
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
        self._free: list[bytes] = []
        self._held: int | None = None

    def put(self, content: bytes) -> bytes:
        """Return the path of a file with this content; it stands until it is given back. Raises OSError."""
        self._make()
        path, fd, kept = self._take_over()
        if fd < 0:
            path = self._next_path()
            fd = os.open(path, _FRESH, 0o600)
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(fd, left) :]
            if kept > len(content):
                os.ftruncate(fd, len(content))
        finally:
            os.close(fd)
        return path

    def give_back(self, path: bytes) -> None:
        """Take a file whose attempt is over."""
        self._free.append(path)

    def _next_path(self) -> bytes:
        return self._start + b"%d.json" % next(self._numbers)

    def _take_over(self) -> tuple[bytes, int, int]:
        """Return a free file, renamed, open and how large, if it is still the plain private file that we made."""
        path = self._next_path()
        try:
            os.rename(self._free.pop(), path)  # noqa: PTH104 - bytes, at half the cost
            fd = os.open(path, _AGAIN)
        except (IndexError, OSError):
            return path, -1, 0
        found = os.fstat(fd)
        if found.st_mode != _PRIVATE or found.st_nlink != 1:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - bytes
            return path, -1, 0
        return path, fd, found.st_size

    def _make(self) -> None:
        if self._made:
            return
        with self._lock:
            if not self._made:
                while self._held is None:
                    self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    self._held = _hold(self._folder)
                for name in os.listdir(self._scratch):  # noqa: PTH208 - names are enough
                    if name.startswith(_PREFIX) and name != self._folder.name:
                        _sweep(self._scratch / name)
                self._made = True

    def remove(self) -> None:
        """Remove the folder and what is left in it. Idempotent."""
        _remove(self._folder)
        held, self._held = self._held, None
        if held is not None:
            os.close(held)


def _remove(folder: Path) -> None:
    """Remove a folder of plain files, and whatever else somebody put there."""
    try:
        for name in os.listdir(folder):  # noqa: PTH208 - names are enough
            (folder / name).unlink()
        folder.rmdir()
    except OSError:
        import shutil  # noqa: PLC0415 - heavy, and nobody has a reason to put something else there

        shutil.rmtree(folder, ignore_errors=True)


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
            _remove(folder)
        finally:
            os.close(fd)
