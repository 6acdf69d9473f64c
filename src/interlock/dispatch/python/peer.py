"""One worker as the driver sees it: its descriptors, the unit it has, the line behind it, when something is due.

Guarantees: an answer is taken whole or not at all, whatever pieces it comes in; a unit that was called back from the
line has not begun and never will; output is redacted before it goes to the log.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections import deque
from typing import Final

from interlock.dispatch.base import NEVER, Job, Request
from interlock.dispatch.env.redact_base import ResolvedEnv, StreamRedactor
from interlock.dispatch.logs.log import AttemptLog, RunLog
from interlock.dispatch.processes.tree import Tree
from interlock.dispatch.python.link import Ends
from interlock.dispatch.python.outcome import Ending
from interlock.dispatch.python.worker import ANSWER, BEFORE, FAILURE, RESULT, SPOKE
from interlock.model.events import LogSpan

_CHUNK: Final = 65_536
_USUAL: Final = 8_192
"""Most answers fit; a bigger buffer for each of them costs more than it saves."""
SLOW_S: Final = 0.1
"""Behind a unit that takes longer the line is given back, if another worker is free."""
_KINDS: Final = (RESULT, SPOKE, FAILURE)
_READS: Final = 16
"""Of one pipe before others have their turn."""
_SLACK: Final = 65_536
"""What an error text may have beyond the limit of results."""
_IDLE_CHECKS: Final = 4
"""How often progress is looked for within the idle timeout."""


Answer = tuple[int, bytes, int]
"""Kind, body, microseconds."""


class Peer:
    """Mutable, owned by the driving thread."""

    __slots__ = (
        "ahead",
        "deadline",
        "ending",
        "env",
        "err",
        "exited",
        "fd",
        "frame",
        "held",
        "idle_at",
        "kill_at",
        "killing",
        "known",
        "later",
        "line",
        "log",
        "look_at",
        "lost",
        "notices",
        "out",
        "plain",
        "process",
        "progress",
        "promised",
        "request",
        "socket",
        "started_at",
        "streams",
        "tree",
        "unsent",
        "wait_status",
        "waiting",
    )

    def __init__(self, ends: Ends) -> None:
        self.process = ends.process
        self.socket = ends.socket
        self.fd = ends.socket.fileno()
        self.ahead = ends.ahead
        self.waiting = ends.waiting
        self.out = ends.out
        self.err = ends.err
        self.known: set[int] = set()
        self.request: Request | None = None
        self.line: deque[Request] = deque()
        """What waits behind its unit, in order: it takes the next by itself when it has answered."""
        self.later: deque[bytes] = deque()
        """Frames of the last of the line, for which its socket has no room yet."""
        self.frame: bytes | None = None
        """Of its own unit, as long as that has not been sent."""
        self.plain = 0
        """Units that were sent by the plain way."""
        self.look_at = NEVER
        """When it is worth a look whether the line moves."""
        self.promised = 0
        """Places in the line that were offered and not used yet."""
        self.env: ResolvedEnv | None = None
        self.started_at = 0
        self.deadline = self.idle_at = self.kill_at = NEVER
        self.progress: tuple[float, int] = (0.0, 0)
        self.tree: Tree | None = None
        self.held = bytearray()
        self.unsent: memoryview | None = None
        self.log: AttemptLog | None = None
        self.notices: tuple[str, ...] = ()
        """What is to be said of its unit's log."""
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
        return min(due, self.look_at) if self.line else due

    # its unit

    def begin(self, request: Request, env: ResolvedEnv, mark: bytes, now: float, now_ms: int) -> float:
        """Take a unit; return when something is due for it."""
        job = request.job
        self.request = request
        self.env = env
        self.look_at = now + SLOW_S
        self.started_at = now_ms
        self.tree = None
        self.deadline = NEVER if job.timeout_ms is None else now + job.timeout_ms / 1_000
        if job.idle_timeout_ms is None:
            return min(self.deadline, self.look_at) if self.line else self.deadline
        self.tree = Tree(self.process.pid, mark)
        self.progress = (now, self.tree.cpu_ticks())
        self.idle_at = now + _idle_step(job)
        return min(self.deadline, self.idle_at)

    def finish(self) -> None:
        """Be done with the unit."""
        self.request = None
        self.env = None
        self.deadline = self.idle_at = NEVER
        self.notices = ()

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

    # its line

    def join(self, request: Request, frame: bytes) -> None:
        """Put a unit at the end of the line."""
        self.line.append(request)
        self.later.append(frame)
        self.send_later()

    def send_later(self) -> None:
        """Send of the line what there is room for, in order."""
        later = self.later
        with contextlib.suppress(OSError):
            while later and len(later[0]) <= _USUAL:
                self.ahead.send(BEFORE.pack(self.plain) + later[0], socket.MSG_NOSIGNAL)
                later.popleft()

    def step_up(self) -> Request:
        """Return the first of the line, which is next; its frame is left in `frame` if it was not sent."""
        request = self.line.popleft()
        self.frame = self.later.popleft() if len(self.later) > len(self.line) else None
        return request

    def call_back(self) -> list[Request]:
        """Take what the worker has not taken yet out of its line, its own next unit too; in order."""
        back = len(self.later) + (self.frame is not None)
        with contextlib.suppress(OSError):
            while self.waiting.recv(1):
                back += 1
        if back > len(self.line) and self.request is not None:
            self.line.appendleft(self.request)
            self.finish()
        found = [self.line.pop() for _ in range(min(back, len(self.line)))]
        found.reverse()
        self.later.clear()
        self.frame = None
        return found

    # its answers

    def receive(self) -> list[Answer]:
        """Return the answers that are whole; `lost` is set when none can come any more."""
        try:
            data = self.socket.recv(_CHUNK if self.held or self.line else _USUAL)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.lost = True
            return []
        if not self.held and len(data) >= ANSWER.size:
            kind, length, took_us = ANSWER.unpack_from(data)
            if len(data) == ANSWER.size + length and kind in _KINDS:
                return [(kind, data[ANSWER.size :], took_us)]
        self.held += data
        return self._whole()

    def _whole(self) -> list[Answer]:
        limit = self.request.job.max_result_bytes + _SLACK if self.request else 0
        found: list[Answer] = []
        at, held = 0, self.held
        while len(held) - at >= ANSWER.size:
            kind, length, took_us = ANSWER.unpack_from(held, at)
            if kind not in _KINDS or length > limit:
                # the function wrote to our socket: nothing it says can be trusted from here on
                self.lost = True
                break
            end = at + ANSWER.size + length
            if end > len(held):
                break
            found.append((kind, bytes(held[at + ANSWER.size : end]), took_us))
            at = end
        del held[:at]
        return found

    # its output

    @staticmethod
    def spoke(pipe: int) -> bool:
        """Tell whether a pipe holds something, or is closed for good."""
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        return bool(poll.poll(0))

    def read_output(self, pipe: int, log: RunLog) -> bool:
        """Take what a pipe holds; False when it is closed for good.

        While units wait in line only one read's worth is surely of this unit: the worker goes on when a pipe is empty.
        """
        for _ in range(1 if self.line else _READS):
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

    def read_all(self, log: RunLog) -> None:
        """Take all that lies in both pipes while the worker takes no other unit."""
        line, self.line = self.line, deque()
        for pipe in (self.out, self.err):
            self.read_output(pipe, log)
        self.line = line

    def _log_output(self, request: Request, pipe: int, data: bytes, log: RunLog) -> None:
        self.progress = (time.monotonic(), self.progress[1])
        if self.log is None:
            self.log = log.attempt(request.dispatch, request.job.max_log_bytes)
        stream = self.streams.get(pipe)
        if stream is None and self.env is not None:
            stream = self.streams[pipe] = self.env.redactor.stream()
        self._write(pipe, stream.feed(data) if stream else data)

    def _write(self, pipe: int, data: bytes) -> None:
        if self.log is not None and data:
            self.log.add("out" if pipe == self.out else "err", data)

    def flush_log(self) -> None:
        """Write what the log has held back."""
        if self.log is not None:
            self.log.flush()

    def close_log(self, log: RunLog, *, silent: bool = False) -> LogSpan | None:
        """Take the last output of the unit, unless there is none, and return where all of it lies."""
        if self.log is None:
            return None
        if not silent:
            self.read_output(self.out, log)
            self.read_output(self.err, log)
        for pipe, stream in self.streams.items():
            self._write(pipe, stream.flush())
        self.streams.clear()
        attempt, self.log = self.log, None
        span = attempt.close()
        self.notices = attempt.notices
        return span

    def close(self) -> None:
        """Close the driver's ends."""
        for end in (self.socket, self.ahead, self.waiting):
            end.close()
        for pipe in (self.out, self.err):
            with contextlib.suppress(OSError):
                os.close(pipe)
        self.out = self.err = -1


def _idle_step(job: Job) -> float:
    return (job.idle_timeout_ms or 0) / 1_000 / _IDLE_CHECKS
