"""Finishes that the journal would not take, kept for the next driver: `spool/<run id>.jsonl`.

Each line is `<crc32 in 8 hex digits> <event as JSON>`. Guarantees: `append` returns when the lines are durable; a
torn last line is dropped; damage before it is an error, never skipped. After `keep_room` a disk that has filled up since
still takes an end of ordinary size.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from interlock.errors import NO_SPACE, JournalCorruptError
from interlock.model.events import AttemptFinished
from interlock.store.durable import OwnFolder, sync_folder

_ENCODER: Final = msgspec.json.Encoder()
_CRC_WIDTH: Final = 8
_ROOM_BYTES: Final = 1_048_576


class Spool:
    """The folder of spool files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = OwnFolder(folder)

    def path(self, run_id: str) -> Path:
        """The run's file. Run ids are made by interlock and hold no separators; a foreign one may not escape."""
        return self._folder / (run_id.replace("/", "_") + ".jsonl")

    @property
    def _room(self) -> Path:
        return self._folder / "room"

    def keep_room(self) -> None:
        """Take room on the disk, for `append` to give back when it finds no other; where it cannot be had, go without."""
        if self._room.exists():
            return
        with contextlib.suppress(OSError):
            self._own.make()
            handle = os.open(self._room, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _allocate(handle, _ROOM_BYTES)
            except OSError:
                self._room.unlink()
                raise
            finally:
                os.close(handle)

    def give_room(self) -> bool:
        """Give the room back; tell whether there was any."""
        with contextlib.suppress(OSError):
            self._room.unlink()
            return True
        return False

    def append(self, run_id: str, finishes: Sequence[AttemptFinished]) -> None:
        """Add the finishes, durably."""
        self._own.make()
        try:
            self._append(run_id, finishes)
        except OSError as error:
            if error.errno not in NO_SPACE or not self.give_room():
                raise
            self._append(run_id, finishes)

    def _append(self, run_id: str, finishes: Sequence[AttemptFinished]) -> None:
        target = self.path(run_id)
        # appended to wherever it ends by then, since a driver that slept may do so too
        handle = os.open(target, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "r+b") as file:
            text = file.read()
            whole = _whole_length(text)
            if whole < len(text):
                file.truncate(whole)
            file.write(b"".join(map(_line, finishes)))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self._folder)

    def read(self, run_id: str) -> list[AttemptFinished]:
        """All finishes of the run, in order; an empty list where there is no file."""
        target = self.path(run_id)
        try:
            text = target.read_bytes()
        except FileNotFoundError:
            return []
        lines = text.split(b"\n")
        # what follows the last newline was being written when the machine stopped
        return [_finish(line, target, number) for number, line in enumerate(lines[:-1], 1)]

    def remove(self, run_id: str) -> None:
        """Forget the run's finishes."""
        target = self.path(run_id)
        if target.exists():
            target.unlink()
            sync_folder(self._folder)


def _allocate(handle: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
        return
    left = size
    while left:
        left -= os.write(handle, bytes(left))


def _whole_length(text: bytes) -> int:
    return text.rfind(b"\n") + 1


def _line(finish: AttemptFinished) -> bytes:
    body = _ENCODER.encode(finish)
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _finish(line: bytes, target: Path, number: int) -> AttemptFinished:
    body = line[_CRC_WIDTH + 1 :]
    if line[: _CRC_WIDTH + 1] == b"%08x " % zlib.crc32(body):
        try:
            # no decoder is kept: to make one takes its time, and a spool is rare
            return msgspec.json.decode(body, type=AttemptFinished)
        except msgspec.MsgspecError:
            pass
    raise JournalCorruptError(
        "spool-corrupt",
        f"line {number} of {target} is damaged",
        "it holds ends of attempts that the journal lacks: repair the line, or move the file away to run them again",
    )
