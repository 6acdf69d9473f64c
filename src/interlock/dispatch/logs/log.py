"""The run's log: stdout and stderr of all attempts in one append-only file.

A frame is a line of JSON, `{"d": dispatch, "s": "out"|"err"|"note", "n": bytes, "c": crc32, "t": epoch ms}`, then
the bytes, then a newline. A driver that opens the file first writes a frame `open`. Guarantees: frames of one append
lie together; an attempt's share is bounded and a note says what was dropped; a small attempt costs one write; what
was cut short by a crash is dropped by the reader, any other damage is an error that names the place. A log that can't
be written takes nothing from the work: what is missing is counted in a note, once there is room, and told in a notice.
"""

from __future__ import annotations

import json
import os
import threading
import time
import zlib
from pathlib import Path
from typing import Final, Literal

from interlock.model.events import LogSpan

Stream = Literal["out", "err", "note"]

OPEN_MARK: Final = b'\n{"s":"open",'
"""Starts the frame that a driver writes first; the newline before it ends whatever a crash cut short."""
_FLUSH_BYTES: Final = 65_536
FLUSH_AFTER_S: Final = 0.2
"""How long an attempt may keep frames to itself: what a person who follows the log waits at most."""


class RunLog:
    """Appends to one file, from any thread. Raises OSError (a full disk, mostly) with nothing half written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._opened = False

    def attempt(self, dispatch: str, max_bytes: int) -> AttemptLog:
        """Start the log of one attempt, bounded to `max_bytes` of output."""
        return AttemptLog(self, dispatch, max_bytes)

    def append(self, frames: bytes) -> tuple[int, int]:
        """Write whole frames; return the offsets of their start and end."""
        with self._lock:
            if not self._opened:
                head = b'{"s":"open","d":"","n":0,"c":0,"t":%d}\n\n' % _now_ms()
                self._write(b"\n" + head if os.fstat(self._fd).st_size else head)
                self._opened = True
            return self._write(frames)

    def _write(self, data: bytes) -> tuple[int, int]:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:] if written else data)
        except OSError:
            if written:
                os.ftruncate(self._fd, os.lseek(self._fd, 0, os.SEEK_CUR) - written)
            raise
        end = os.lseek(self._fd, 0, os.SEEK_CUR)
        return end - len(data), end

    def close(self) -> None:
        """Release the file. Idempotent."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


class AttemptLog:
    """One attempt's share of the log. Used by one thread. Never raises for what can't be written."""

    def __init__(self, log: RunLog, dispatch: str, max_bytes: int) -> None:
        self._log = log
        self._name = json.dumps(dispatch).encode()
        self._left = max_bytes
        self._max_bytes = max_bytes
        self._dropped = 0
        self._missing = 0
        """Bytes that could not be written and that no note tells of yet."""
        self._trouble = ""
        """Why something could not be written."""
        self._frames: list[bytes] = []
        self._held = 0
        self._since = 0.0
        self._start = -1
        self._end = 0

    @property
    def flush_at(self) -> float | None:
        """When (monotonic) held frames are due; None when nothing is held."""
        return self._since + FLUSH_AFTER_S if self._frames else None

    def add(self, stream: Stream, data: bytes) -> None:
        """Take redacted output; it is written when enough is held, when it is due, or at the end."""
        if len(data) > self._left:
            self._dropped += len(data) - self._left
            data = data[: self._left]
        if not data:
            return
        self._left -= len(data)
        self._frame(stream, data)
        if self._held >= _FLUSH_BYTES:
            self.flush()

    def _frame(self, stream: Stream, data: bytes) -> None:
        if not self._frames:
            self._since = time.monotonic()
        self._frames += self._framed(stream, data)
        if stream != "note":
            self._held += len(data)

    def flush(self) -> None:
        """Write what is held."""
        if self._frames:
            self._write()

    def _write(self) -> None:
        frames, held, self._frames, self._held = self._frames, self._held, [], 0
        if self._missing:
            told = b"%d bytes could not be written: %s" % (self._missing, self._trouble.encode())
            frames = [*self._framed("note", told), *frames]
        try:
            start, self._end = self._log.append(b"".join(frames))
        except OSError as error:
            self._missing += held
            self._trouble = error.strerror or str(error)
            return
        self._missing = 0
        if self._start < 0:
            self._start = start

    def _framed(self, stream: Stream, data: bytes) -> tuple[bytes, bytes, bytes]:
        head = b'{"d":%b,"s":"%b","n":%d,"c":%d,"t":%d}\n'
        return head % (self._name, stream.encode(), len(data), zlib.crc32(data), _now_ms()), data, b"\n"

    @property
    def notices(self) -> tuple[str, ...]:
        """What is to be said of a log that is not whole."""
        if not self._trouble:
            return ()
        return (f"the log {self._log.path} lacks some of what was said: it could not be written: {self._trouble}",)

    def close(self) -> LogSpan | None:
        """Write the rest and return where the frames lie; None when the attempt said nothing."""
        if self._dropped:
            self._frame(
                "note",
                b"%d bytes dropped: the limit is %d (max_log_bytes of [limits])" % (self._dropped, self._max_bytes),
            )
            self._dropped = 0
        self.flush()
        if self._missing:
            # room may be there by now, be it for the note alone
            self._write()
        return None if self._start < 0 else LogSpan(self._start, self._end - self._start)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
