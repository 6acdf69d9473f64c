"""Where context files lie: a private folder of the driver, one file for each attempt under way.

Making and removing a file costs more than starting a small command, so an attempt takes over the file of one that is
over, under a new name: what an earlier attempt left behind finds nothing at the path that it knows.
Guarantee: the path given holds exactly the content given, whatever the last attempt did to its file.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from pathlib import Path
from typing import Final

from interlock.dispatch.commands.own_folder import OwnFolder

_FRESH: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_AGAIN: Final = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_PRIVATE: Final = stat.S_IFREG | 0o600


class ContextFiles:
    """The files of one driver. Safe from any thread."""

    def __init__(self, scratch: Path, name: str) -> None:
        self._folder = OwnFolder(scratch, "contexts-", name)
        self._start = os.fsencode(self._folder.path) + b"/"
        self._numbers = itertools.count(1)
        self._free: list[bytes] = []

    def put(self, content: bytes) -> bytes:
        """Return the path of a file with this content; it stands until it is given back. Raises OSError."""
        self._folder.make()
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

    def remove(self) -> None:
        """Remove the folder and what is left in it. Idempotent."""
        self._folder.remove()
