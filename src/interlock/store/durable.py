"""Folders whose entries outlive a machine that stops."""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make the folder's entries durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class OwnFolder:
    """A folder of ours that is made when it is needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._durable = False

    def make(self) -> None:
        """Make sure that it is there, durably."""
        if self._durable:
            return
        self.path.mkdir(mode=0o700, exist_ok=True)
        # also where it was there: who made it may have been killed before it was durable
        sync_folder(self.path.parent)
        self._durable = True
