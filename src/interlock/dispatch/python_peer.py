"""One worker as the driver sees it: its descriptors, the unit it has, when something is due for it.

Guarantee: an answer is taken whole or not at all, whatever pieces it comes in; output is redacted before it goes to
the log, and a log that cannot be written is remembered (`log_error`), never raised.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from typing import Final

from interlock.dispatch.base import Job, Request
from interlock.dispatch.log import AttemptLog, RunLog
from interlock.dispatch.python_link import Ends
from interlock.dispatch.python_outcome import Ending
from interlock.dispatch.python_worker import FAILURE, HEAD, RESULT
from interlock.dispatch.redact_base import ResolvedEnv, StreamRedactor
from interlock.dispatch.tree import Tree
from interlock.model.events import LogSpan

NEVER: Final = math.inf
_CHUNK: Final = 65_536
_USUAL: Final = 8_192
"""Most answers fit; a bigger buffer for each of them costs more than it saves."""
_READS: Final = 16
"""Of one pipe before others have their turn."""
_SLACK: Final = 65_536
"""What an error text may have beyond the limit of results."""
_IDLE_CHECKS: Final = 4
"""How often progress is looked for within the idle timeout."""


class Peer:
    """Mutable, owned by the driving thread."""

    __slots__ = (
        "deadline",
        "ending",
        "env",
        "err",
        "exited",
        "fd",
        "held",
        "idle_at",
        "kill_at",
        "killing",
        "known",
        "log",
        "log_error",
        "lost",
        "out",
        "process",
        "progress",
        "request",
        "socket",
        "started_at",
        "streams",
        "tree",
        "unsent",
        "wait_status",
    )

    def __init__(self, ends: Ends) -> None:
        self.process = ends.process
        self.socket = ends.socket
        self.fd = ends.socket.fileno()
        self.out = ends.out
        self.err = ends.err
        self.known: set[int] = set()
        self.request: Request | None = None
        self.env: ResolvedEnv | None = None
        self.started_at = 0
        self.deadline = self.idle_at = self.kill_at = NEVER
        self.progress: tuple[float, int] = (0.0, 0)
        self.tree: Tree | None = None
        self.held = bytearray()
        self.unsent: memoryview | None = None
        self.log: AttemptLog | None = None
        self.log_error: OSError | None = None
        self.streams: dict[int, StreamRedactor] = {}
        self.ending: Ending | None = None
        self.killing = False
        self.lost = False
        self.exited = False
        self.wait_status: int | None = None

    @property
    def usable(self) -> bool:
        """Whether it can take another unit."""
        return not (self.lost or self.exited or self.ending or self.killing)

    @property
    def due(self) -> float:
        """When (monotonic) something has to be done about it."""
        due = min(self.deadline, self.idle_at, self.kill_at)
        if self.log is not None and self.log.flush_at is not None:
            due = min(due, self.log.flush_at)
        return due

    # its unit

    def begin(self, request: Request, env: ResolvedEnv, mark: bytes, now: float, now_ms: int) -> float:
        """Take a unit; return when something is due for it."""
        job = request.job
        self.request = request
        self.env = env
        self.started_at = now_ms
        self.tree = None
        self.deadline = NEVER if job.timeout_ms is None else now + job.timeout_ms / 1_000
        if job.idle_timeout_ms is None:
            return self.deadline
        self.tree = Tree(self.process.pid, mark)
        self.progress = (now, self.tree.cpu_ticks())
        self.idle_at = now + _idle_step(job)
        return min(self.deadline, self.idle_at)

    def finish(self) -> None:
        """Be done with the unit."""
        self.request = None
        self.env = None
        self.deadline = self.idle_at = NEVER
        self.log_error = None

    def idled(self, job: Job, now: float) -> bool:
        """Look for progress; True when there was none for the whole idle timeout."""
        at, ticks = self.progress
        used = self.tree.cpu_ticks() if self.tree else 0
        if used != ticks:
            self.progress = (now, used)
        elif now - at >= (job.idle_timeout_ms or 0) / 1_000:
            return True
        self.idle_at = now + _idle_step(job)
        return False

    # its answer

    def receive(self) -> tuple[int, bytes] | None:
        """Return an answer once it is whole; `lost` is set when none can come any more."""
        try:
            data = self.socket.recv(_CHUNK if self.held else _USUAL)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self.lost = True
            return None
        if self.held:
            self.held += data
            return self._whole()
        if len(data) >= HEAD.size:
            kind, length = HEAD.unpack_from(data)
            if len(data) == HEAD.size + length and kind in (RESULT, FAILURE):
                return kind, data[HEAD.size :]
        self.held += data
        return self._whole()

    def _whole(self) -> tuple[int, bytes] | None:
        if len(self.held) < HEAD.size:
            return None
        kind, length = HEAD.unpack_from(self.held)
        limit = self.request.job.max_result_bytes + _SLACK if self.request else 0
        if kind not in (RESULT, FAILURE) or length > limit:
            # the function wrote to our socket: nothing it says can be trusted from here on
            self.lost = True
            return None
        if len(self.held) < HEAD.size + length:
            return None
        body = bytes(self.held[HEAD.size : HEAD.size + length])
        self.held.clear()
        return kind, body

    # its output

    def read_output(self, pipe: int, log: RunLog) -> bool:
        """Take what a pipe holds; False when it is closed for good."""
        for _ in range(_READS):
            try:
                data = os.read(pipe, _CHUNK)
            except BlockingIOError:
                return True
            except OSError:
                data = b""
            if not data:
                return False
            if self.request is not None:
                self._log_output(self.request, pipe, data, log)
            if len(data) < _CHUNK:
                return True
        return True

    def _log_output(self, request: Request, pipe: int, data: bytes, log: RunLog) -> None:
        self.progress = (time.monotonic(), self.progress[1])
        if self.log_error is not None:
            return
        if self.log is None:
            self.log = log.attempt(request.dispatch, request.job.max_log_bytes)
        stream = self.streams.get(pipe)
        if stream is None and self.env is not None:
            stream = self.streams[pipe] = self.env.redactor.stream()
        self._write(pipe, stream.feed(data) if stream else data)

    def _write(self, pipe: int, data: bytes) -> None:
        if self.log is None or not data:
            return
        try:
            self.log.add("out" if pipe == self.out else "err", data)
        except OSError as error:
            self.log_error = error

    def flush_log(self) -> None:
        """Write what the log has held back."""
        if self.log is not None:
            try:
                self.log.flush()
            except OSError as error:
                self.log_error = error

    def close_log(self, log: RunLog) -> LogSpan | None:
        """Take the last output of the unit and return where all of it lies."""
        if self.log is None:
            return None
        self.read_output(self.out, log)
        self.read_output(self.err, log)
        for pipe, stream in self.streams.items():
            self._write(pipe, stream.flush())
        self.streams.clear()
        attempt, self.log = self.log, None
        try:
            return attempt.close()
        except OSError as error:
            self.log_error = error
            return None

    def close(self) -> None:
        """Close the driver's ends."""
        self.socket.close()
        for pipe in (self.out, self.err):
            with contextlib.suppress(OSError):
                os.close(pipe)
        self.out = self.err = -1


def _idle_step(job: Job) -> float:
    return (job.idle_timeout_ms or 0) / 1_000 / _IDLE_CHECKS
