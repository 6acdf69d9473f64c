"""What comes out of an attempt: its result, the end of its stderr, and its share of the log, all redacted.

Guarantee: output is held up to the result's limit, or so much of its end, and no further, however much comes; what is
held back by a redactor reaches result and log at the end.
"""

from __future__ import annotations

import os
from typing import Final, Literal

from interlock.dispatch.env.redact_base import Redactor
from interlock.dispatch.logs.log import AttemptLog
from interlock.model.outcome import FEEDBACK_CHARS

CHUNK_BYTES: Final = 65_536
TAIL_BYTES: Final = 2_048
CHECK_BYTES: Final = 4 * FEEDBACK_CHARS
"""So much of a check's output holds all of the feedback that is made of it."""


class Sink:
    """One of the two streams. `out` keeps what comes up to the limit, unless its end is wanted; `err` keeps its end."""

    def __init__(
        self,
        fd: int,
        name: Literal["out", "err"],
        keep_bytes: int,
        redactor: Redactor,
        log: AttemptLog,
        *,
        keeps_end: bool = False,
    ) -> None:
        self.fd = fd
        self._name: Literal["out", "err"] = name
        self._keep_bytes = keep_bytes
        self._keeps_end = keeps_end or name == "err"
        self._all = redactor
        self._redactor = redactor.stream()
        self._log = log
        self._parts: list[bytes] = []
        self._kept = 0
        self.total = 0

    def read(self) -> bool:
        """Take the next chunk, waiting for it if there is none yet; False at the end of the stream."""
        data = os.read(self.fd, CHUNK_BYTES)
        self.total += len(data)
        if data:
            self._take(self._redactor.feed(data))
        return bool(data)

    def _take(self, data: bytes) -> None:
        if not data:
            return
        self._log.add(self._name, data)
        if self._keeps_end:
            self._kept += len(data)
            if self._kept > self._keep_bytes + CHUNK_BYTES:
                self._parts = [b"".join(self._parts)[-self._keep_bytes :]]
                self._kept = len(self._parts[0])
        elif self.total > self._keep_bytes:
            return
        self._parts.append(data)

    def finish(self) -> None:
        """Take what the redactor held back."""
        self._take(self._redactor.flush())

    def whole(self) -> bytes:
        """Return all that is held."""
        return b"".join(self._parts)

    def result(self) -> bytes:
        """Return all that is held as it may be kept.

        What is read as JSON may say a value in a spelling of its own, and more is known by now than when it was read.
        """
        return self._all.json(self.whole()[-self._keep_bytes :] if self._keeps_end else self.whole())

    def tail(self, size: int = TAIL_BYTES) -> bytes:
        """Return the last bytes of what is held."""
        return self._all.text(b"".join(self._parts)[-size:])
