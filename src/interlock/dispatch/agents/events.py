"""An agent's stdout while it comes: kept within bounds, and watched line by line for the last event.

Guarantees: of any amount of output the first HEAD_BYTES and the last TAIL_BYTES are kept, so that the event that
opens a session and the one that ends it are both there; a line is looked at as soon as its end has come, whatever
a redactor still holds back.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Final

from interlock.dispatch.commands.output import CHUNK_BYTES, Sink
from interlock.dispatch.env.redact_base import Redactor
from interlock.dispatch.logs.log import AttemptLog

HEAD_BYTES: Final = 262_144
TAIL_BYTES: Final = 16_777_216
_MAX_LINE_BYTES: Final = 4_194_304
"""A longer line is not shown to the watcher; the reader still gets it."""


class EventSink(Sink):
    """Stdout of one agent. `on_line` gets every complete line, without its end."""

    def __init__(self, fd: int, redactor: Redactor, log: AttemptLog, on_line: Callable[[bytes], None]) -> None:
        super().__init__(fd, "out", 0, redactor, log)
        self._on_line = on_line
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._head: list[bytes] = []
        self._head_bytes = 0
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._gap = False

    def read(self) -> bool:
        """Take the next chunk; False at the end of the stream."""
        data = os.read(self.fd, CHUNK_BYTES)
        self.total += len(data)
        if data:
            self._cut_lines(data)
            self._take(self._redactor.feed(data))
        return bool(data)

    def _cut_lines(self, data: bytes) -> None:
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._add_to_line(part)
            if self._line_bytes <= _MAX_LINE_BYTES:
                self._on_line(b"".join(self._line))
            self._line, self._line_bytes = [], 0
        self._add_to_line(rest)

    def _add_to_line(self, part: bytes) -> None:
        self._line_bytes += len(part)
        if self._line_bytes <= _MAX_LINE_BYTES:
            self._line.append(part)

    def _take(self, data: bytes) -> None:
        if not data:
            return
        self._log.add("out", data)
        if self._head_bytes < HEAD_BYTES:
            self._head.append(data)
            self._head_bytes += len(data)
            return
        self._tail.append(data)
        self._tail_bytes += len(data)
        while self._tail_bytes - len(self._tail[0]) > TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft())
            self._gap = True

    def whole(self) -> bytes:
        """Return what is held; where the middle is missing, the lines that it cut are gone too."""
        head, tail = b"".join(self._head), b"".join(self._tail)
        if not self._gap:
            return head + tail
        return head[: head.rfind(b"\n") + 1] + tail[tail.find(b"\n") + 1 :]

    def result(self) -> bytes:
        """Return what is held: an adapter reads it, and what it makes of it is redacted."""
        return self.whole()

    def tail(self, size: int = 2_048) -> bytes:
        """Return the last bytes of what is held."""
        return self._all.text(self.whole()[-size:])
