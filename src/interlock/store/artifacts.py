"""Artifacts above 64 KiB: files named by their hash, beside the journal.

Guarantees: a file is whole and durable under its name or not there at all (written aside, fsynced, renamed,
folder fsynced); what is read back is checked against its hash.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from interlock.errors import JournalCorruptError
from interlock.model.canon import sha256

INLINE_MAX_BYTES: Final = 64 * 1024
_PART: Final = ".part-"
_GRACE_S: Final = 3_600
"""A file younger than this may belong to a transaction that is about to name it."""


def sync_folder(folder: Path) -> None:
    """Make the folder's entries durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Artifacts:
    """The folder of artifact files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, tagged: str) -> Path:
        """Where the artifact of this tagged hash lies. The tag is kept; a colon is no good in file names."""
        return self._folder / tagged.replace(":", "-")

    def put(self, tagged: str, content: bytes) -> None:
        """Write the content unless it is there already."""
        target = self.path(tagged)
        if target.exists() and target.stat().st_size == len(content):
            # tells `sweep` that somebody is about to name it again
            os.utime(target)
            return
        if not self._folder.is_dir():
            self._folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(self._folder.parent)
        import tempfile  # noqa: PLC0415 - heavy, and few artifacts are that large

        handle, name = tempfile.mkstemp(prefix=_PART, dir=self._folder)
        try:
            with os.fdopen(handle, "wb") as part:
                part.write(content)
                part.flush()
                os.fsync(part.fileno())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_folder(self._folder)

    def get(self, tagged: str) -> bytes:
        """Read and verify."""
        target = self.path(tagged)
        hint = "restore the file from a backup, or start the run anew"
        try:
            content = target.read_bytes()
        except FileNotFoundError:
            raise JournalCorruptError("artifact-missing", f"the artifact file {target} is missing", hint) from None
        if sha256(content) != tagged:
            raise JournalCorruptError("artifact-corrupt", f"the artifact file {target} does not match its name", hint)
        return content

    def sweep(self, referenced: Iterable[str], *, dry_run: bool = False) -> int:
        """Remove files that no row names and that are not brand-new; return how many those are."""
        keep = {self.path(tagged).name for tagged in referenced}
        before = time.time() - _GRACE_S
        found = 0
        for entry in self._folder.iterdir() if self._folder.is_dir() else ():
            if entry.name not in keep and entry.stat().st_mtime < before:
                found += 1
                if not dry_run:
                    entry.unlink(missing_ok=True)
        return found
