"""A folder that one driver has for itself beside those of others, for files that nobody needs after it.

Guarantee: folders of drivers that were killed are removed, those of living drivers stay, which a lock on each folder
tells apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW


class OwnFolder:
    """`place/PREFIX+name`; folders there with the same prefix are other drivers'. Safe from any thread."""

    def __init__(self, place: Path, prefix: str, name: str) -> None:
        self.path = place / (prefix + name)
        self._place = place
        self._prefix = prefix
        self._lock = threading.Lock()
        self._made = False
        self._held: int | None = None

    def make(self) -> None:
        """Make the folder and remove those of killed drivers, once. Raises OSError."""
        if self._made:
            return
        with self._lock:
            if not self._made:
                while self._held is None:
                    self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                    self._held = _hold(self.path)
                for name in os.listdir(self._place):  # noqa: PTH208 - names are enough
                    if name.startswith(self._prefix) and name != self.path.name:
                        _sweep(self._place / name)
                self._made = True

    def remove(self) -> None:
        """Remove the folder and what is left in it. Idempotent."""
        held, self._held = self._held, None
        if held is not None:
            _remove(self.path)
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
