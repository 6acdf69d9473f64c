"""Artifacts above 64 KiB: files named by their hash, beside the journal.

Guarantees: a file is whole and durable under its name or not there at all (written aside, fsynced, renamed,
folder fsynced), also where a damaged one was in its place; what is read back is checked against its hash.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from interlock.errors import JournalCorruptError
from interlock.model.canon import sha256
from interlock.store.durable import OwnFolder, sync_folder

INLINE_MAX_BYTES: Final = 64 * 1024
_PART: Final = ".part-"
_PIECE_BYTES: Final = 1024 * 1024
_RESTORE: Final = "restore the file from a backup"
_GRACE_S: Final = 3_600
"""A file younger than this may belong to a transaction that is about to name it."""


class Artifacts:
    """The folder of artifact files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = OwnFolder(folder)

    def path(self, tagged: str) -> Path:
        """Where the artifact of this tagged hash lies. The tag is kept; a colon is no good in file names."""
        return self._folder / tagged.replace(":", "-")

    def has(self, tagged: str) -> bool:
        """Tell whether there is a file of that name."""
        return self.path(tagged).exists()

    def put(self, tagged: str, content: bytes) -> None:
        """Write the content, unless it is there already; a file of its name with anything else in it is replaced."""
        target = self.path(tagged)
        self._own.make()
        if not _holds(target, content):
            self._write(target, content)
        sync_folder(self._folder)

    def _write(self, target: Path, content: bytes) -> None:
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

    def get(self, tagged: str) -> bytes:
        """Read and verify."""
        target = self.path(tagged)
        try:
            content = target.read_bytes()
        except FileNotFoundError:
            raise artifact_missing(target) from None
        if sha256(content) != tagged:
            raise artifact_corrupt(target)
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


def _holds(path: Path, content: bytes) -> bool:
    """Tell whether the file holds just that; then it is durable, and young to `sweep`. One that can't be read does not."""
    piece, seen = bytearray(_PIECE_BYTES), 0
    try:
        with path.open("rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size != len(content):
                return False
            while size := file.readinto(piece):
                if memoryview(piece)[:size] != memoryview(content)[seen : seen + size]:
                    return False
                seen += size
            os.utime(file.fileno())
            os.fsync(file.fileno())
    except OSError:
        return False
    return seen == len(content)


def artifact_missing(path: Path) -> JournalCorruptError:
    """Return the error for an artifact without its file."""
    return JournalCorruptError("artifact-missing", f"the artifact file {path} is missing", _RESTORE)


def artifact_corrupt(path: Path) -> JournalCorruptError:
    """Return the error for an artifact whose file holds something else."""
    return JournalCorruptError("artifact-corrupt", f"the artifact file {path} does not match its name", _RESTORE)


def of_step(error: JournalCorruptError, run_id: str, step_id: str, workflow: str) -> JournalCorruptError:
    """Return the error with whose artifact it is, and what makes it anew."""
    return JournalCorruptError(
        error.code,
        f"step '{step_id}' of run {run_id}: {error.message}",
        f"{_RESTORE}, or start anew: interlock run {shlex.quote(workflow)}",
    )
