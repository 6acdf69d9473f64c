"""Supervises one running command: reads it, ends it when it must end, and says how it went.

Guarantees: the reason for ending is fixed when the end is decided and no later trouble changes it; no outcome is
given while anything of the attempt's group runs, nor, once it was ended by force, anything of its tree; a pipe that
somebody still holds keeps an attempt open for 100 ms after its leader's exit and no longer.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final, Literal, Protocol

from interlock.dispatch.attempt import KILL_AFTER_S, Attempt, Ending, now_ms
from interlock.dispatch.base import Job, Outcome, Report, Started
from interlock.dispatch.commands.context import left_out
from interlock.dispatch.commands.exits import exit_fd, is_ready, is_zombie, reap, signal_name
from interlock.dispatch.commands.output import CHUNK_BYTES, Sink
from interlock.dispatch.logs.log import AttemptLog
from interlock.dispatch.processes import identity
from interlock.dispatch.processes.tree import Tree
from interlock.model.durations import spelled_duration
from interlock.model.events import Process
from interlock.model.states import Reason

_HELD_PIPE_S: Final = 0.1
_LOOK_S: Final = 0.05
_GONE_S: Final = 0.02
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_DRAIN_BYTES: Final = 1_048_576
"""More than a pipe holds: what the leader wrote before it ended is read whole."""


class Poller(Protocol):
    """What `select.poll` and `select.epoll` have in common."""

    def register(self, fd: int, eventmask: int, /) -> None:
        """Watch a descriptor."""
        ...

    def unregister(self, fd: int, /) -> None:
        """Stop watching it."""
        ...


class Supervisor:
    """Watches one running process. Used by one thread at a time; pollers are that thread's.

    A thread that has nothing else to do calls `run`. One that has calls `begin`, `attach`, `take` for each event, and
    `end` when it is `done`; or `detach`, so that another one can go on with `run`.
    """

    def __init__(
        self,
        attempt: Attempt,
        popen: subprocess.Popen[bytes],
        sinks: tuple[Sink, Sink],
        log: AttemptLog,
        mark: bytes,
        *,
        max_out_bytes: int | None = None,
        busy_share: float = 0.0,
    ) -> None:
        """Watch for the job's limits.

        `max_out_bytes` stands in for the job's limit of the result where stdout is more than the result;
        `busy_share` is how much of one processor the tree must use to count as making progress.
        """
        self._attempt = attempt
        attempt.has_process = True
        self._job: Job = attempt.request.job
        self._max_out_bytes = self._job.max_result_bytes if max_out_bytes is None else max_out_bytes
        # an exit code that is the answer is worth waiting for
        self._ends_above_bytes = sys.maxsize if self._job.accepts_any_exit else self._max_out_bytes + 1
        self._busy_ticks_per_s = busy_share * _TICKS_PER_S
        self._popen = popen
        self._out, self._err = sinks
        self._log = log
        self._tree = Tree(popen.pid, mark)
        self._open = {sink.fd: sink for sink in sinks}
        self._exit_fd = -1
        self.watched: set[int] = set()
        """Descriptors registered with the poller."""
        self._begun = False
        self._told = False
        self._exited = False
        self._ending: Ending | None = None
        self._kill_at = 0.0
        began = time.monotonic()
        self._deadline = None if self._job.timeout_ms is None else began + self._job.timeout_ms / 1000
        self._idle_s = None if self._job.idle_timeout_ms is None else self._job.idle_timeout_ms / 1000
        self._progress_at = began
        self._look_at = None if self._idle_s is None else began + self._look_every_s(self._idle_s)
        self._cpu_ticks = 0
        self._looked_at = began
        self._hold_until = 0.0
        self._code: int | None = None

    @property
    def ending(self) -> bool:
        """Whether it was told to end."""
        return self._ending is not None

    def leave(self, seconds: float) -> None:
        """Allow at most this much more time; to be called by the watching thread, from a sink."""
        at = time.monotonic() + seconds
        self._deadline = at if self._deadline is None else min(at, self._deadline)

    def begin(self) -> bool:
        """Get hold of the process; tell whether its exit will be an event."""
        self._begun = True
        self._exit_fd = exit_fd(self._popen.pid)
        return self._exit_fd >= 0

    def _identify(self) -> Process | None:
        """Return which process it is, found out before it is reaped: afterwards its pid may be another's."""
        if self._attempt.process is None and self._popen.returncode is None:
            self._attempt.process = identity.identify(self._popen.pid)
        return self._attempt.process

    def tell(self, report: Callable[[Report], None]) -> None:
        """Report its process, once."""
        process = None if self._told else self._identify()
        if process is not None:
            report(Started(dispatch=self._attempt.request.dispatch, process=process))
        self._told = True

    def run(self, poller: select.poll, wake_fd: int, report: Callable[[Report], None]) -> Outcome:
        """Watch until the end, `wake_fd` registered with `poller`."""
        try:
            if not self._begun:
                self.begin()
            self.attach(poller)
            self.tell(report)
            self._judge()
            self._watch(poller, wake_fd)
        finally:
            self._close(poller)
        return self._outcome()

    def attach(self, poller: Poller, *, exit_only: bool = False) -> None:
        """Have everything watched, or its exit and nothing else for now."""
        if self._exit_fd >= 0:
            self._register(self._exit_fd, poller)
        if not exit_only:
            for fd in self._open:
                self._register(fd, poller)

    def detach(self, poller: Poller) -> None:
        """Have nothing watched any more."""
        for fd in [*self.watched]:
            self._unregister(fd, poller)

    def _register(self, fd: int, poller: Poller) -> None:
        if fd not in self.watched:
            poller.register(fd, select.POLLIN)
            self.watched.add(fd)

    def _unregister(self, fd: int, poller: Poller) -> None:
        if fd in self.watched:
            self.watched.discard(fd)
            poller.unregister(fd)

    def _watch(self, poller: select.poll, wake_fd: int) -> None:
        while not self.done:
            for fd, _ in poller.poll(self._timeout_ms()):
                if fd == wake_fd:
                    os.read(fd, 64)
                else:
                    self.take(fd, poller)
            if self._exit_fd < 0 and not self._exited and is_zombie(self._popen.pid):
                self._leader_exited()
            self._judge()

    def take(self, fd: int, poller: Poller) -> None:
        """Take in what is ready."""
        if fd != self._exit_fd:
            self._read(self._open[fd], poller)
            return
        self._close_exit_fd(poller)
        self._leader_exited()
        for sink in [sink for fd, sink in self._open.items() if fd not in self.watched]:
            # all that the leader wrote is there; whoever else holds the pipe is watched
            for _ in range(_DRAIN_BYTES // CHUNK_BYTES):
                if not is_ready(sink.fd) or not self._read(sink, poller):
                    break
        self.attach(poller)

    def end(self, poller: Poller) -> Outcome:
        """Reap the process, close both pipes, and say how it went."""
        self._close(poller)
        return self._outcome()

    def _read(self, sink: Sink, poller: Poller) -> bool:
        """Read once; tell whether more may come."""
        more = sink.read()
        self._progress_at = time.monotonic()
        if not more:
            self._unregister(sink.fd, poller)
            os.close(sink.fd)
            del self._open[sink.fd]
        return more

    def _leader_exited(self) -> None:
        self._exited = True
        self._hold_until = time.monotonic() + _HELD_PIPE_S
        if self._ending is None:
            # the leader is not reaped yet, so the group is still its own
            self._tree.signal_group(signal.SIGKILL)

    @property
    def done(self) -> bool:
        """Whether there is nothing left to wait for."""
        if not self._exited:
            return False
        if self._ending is not None:
            return self._tree.gone()
        return not self._open or time.monotonic() >= self._hold_until

    @property
    def troubled(self) -> bool:
        """Whether what came in makes it necessary to end the attempt."""
        return self._ending is not None or (not self._exited and self._out.total > self._ends_above_bytes)

    def _timeout_ms(self) -> float | None:
        now = time.monotonic()
        due = [self._log.flush_at]
        if self._ending is not None:
            due.append(min(self._kill_at, now + (_GONE_S if self._exited else _LOOK_S)))
        elif self._exited:
            due.append(self._hold_until)
        else:
            due += [self._deadline, self._look_at, now + _LOOK_S if self._exit_fd < 0 else None]
        first = min((at for at in due if at is not None), default=None)
        return None if first is None else max(0.0, first - now) * 1000

    def _judge(self) -> None:
        """Decide whether the attempt has to be ended, and carry on with an end that was decided."""
        now = time.monotonic()
        if (flush_at := self._log.flush_at) is not None and now >= flush_at:
            self._log.flush()
        cancel = self._attempt.cancelled
        if self._ending is not None:
            if cancel is not None:
                self._kill_at = min(self._kill_at, cancel.kill_at)
            if now >= self._kill_at:
                self._tree.kill()
        elif self._exited:
            return
        elif cancel is not None:
            # what has exited by itself is done, though that was not noticed yet: its exit is the next event
            if not is_zombie(self._popen.pid):
                self._end(Ending(None, "cancelled"), cancel.kill_at - now)
        elif self._out.total > self._ends_above_bytes:
            self._end(Ending(Reason.OUTPUT_TOO_LARGE, _TOO_LARGE.format(self._max_out_bytes)), KILL_AFTER_S)
        elif self._deadline is not None and now >= self._deadline:
            self._end(Ending(Reason.TIMEOUT, f"timed out after {spelled_duration(self._job.timeout_ms)}"), KILL_AFTER_S)
        elif self._idle_s is not None and self._look_at is not None and now >= self._look_at:
            self._look(self._idle_s)

    @staticmethod
    def _look_every_s(idle_s: float) -> float:
        return min(5.0, max(_LOOK_S, idle_s / 4))

    def _look(self, idle_s: float) -> None:
        """See whether an idle timeout has run out; the next look is due soon enough to notice it in time."""
        now = time.monotonic()
        ticks = self._tree.cpu_ticks()
        if abs(ticks - self._cpu_ticks) > self._busy_ticks_per_s * (now - self._looked_at):
            self._progress_at = now
        self._cpu_ticks, self._looked_at = ticks, now
        if now >= self._progress_at + idle_s:
            idle_ms = self._job.idle_timeout_ms
            self._end(
                Ending(Reason.IDLE_TIMEOUT, f"no output and no processor time for {spelled_duration(idle_ms)}"),
                KILL_AFTER_S,
            )
        self._look_at = now + self._look_every_s(idle_s)

    def _end(self, ending: Ending, grace_s: float) -> None:
        if self._ending is not None:
            return
        self._ending = ending
        self._kill_at = time.monotonic() + grace_s
        with contextlib.suppress(OSError):
            self._tree.signal(signal.SIGTERM)

    def _close(self, poller: Poller) -> None:
        self._close_exit_fd(poller)
        if not self._exited:
            # only after an error of our own: whatever it was, nothing is left behind
            self._tree.kill()
        self._identify()
        self._code = reap(self._popen)
        for sink in list(self._open.values()):
            with contextlib.suppress(OSError):
                _drain(sink)
            self._unregister(sink.fd, poller)
            os.close(sink.fd)
        self._open.clear()

    def _close_exit_fd(self, poller: Poller) -> None:
        if self._exit_fd >= 0:
            self._unregister(self._exit_fd, poller)
            os.close(self._exit_fd)
            self._exit_fd = -1

    def _outcome(self) -> Outcome:
        self._out.finish()
        self._err.finish()
        span = self._log.close()
        reason, error_text = self._verdict(self._code)
        status: Literal["ok", "aborted", "failed"]
        status = "ok" if reason is None else "aborted" if reason is Reason.ABORTED else "failed"
        return Outcome(
            dispatch=self._attempt.request.dispatch,
            status=status,
            reason=reason,
            error=error_text,
            output=self._output() if reason is None else b"",
            answered=self._ending is None and reason not in _NO_ANSWER,
            exit_code=self._code if self._code is not None and self._code >= 0 else None,
            process=self._attempt.process,
            log=span,
            notices=self._log.notices,
            started_at=self._attempt.started_at,
            ended_at=now_ms(),
        )

    def _output(self) -> bytes:
        out = self._out.result()
        if not self._job.accepts_any_exit or self._code == 0:
            return out
        # why it did not pass may have been said on either stream
        said = self._err.tail()
        return out + (b"\n" if out and said and not out.endswith(b"\n") else b"") + said

    def _verdict(self, code: int | None) -> tuple[Reason | None, str]:
        if self._ending is not None:
            return self._ending.reason or Reason.ABORTED, self._ending.error
        if code is None:
            return (
                Reason.DISPATCH_ERROR,
                "the exit code is unknown: another part of this program waits for all children",
            )
        if code < 0:
            return Reason.KILLED, f"ended by {signal_name(-code)}{self._said()}"
        if self._is_result(code) and self._is_too_large():
            return Reason.OUTPUT_TOO_LARGE, _TOO_LARGE.format(self._max_out_bytes)
        if code == 0:
            return None, ""
        said = self._said()
        error = f"exit code {code}{said}{left_out(self._attempt.request, said)}"
        return (None if self._job.accepts_any_exit else Reason.NON_ZERO_EXIT), error

    def _is_result(self, code: int) -> bool:
        """Tell whether the whole output is wanted: of a probe that says yes it is, of a check never."""
        return not self._job.accepts_any_exit or (code == 0 and not self._job.keeps_end)

    def _is_too_large(self) -> bool:
        size, limit = self._out.total, self._max_out_bytes
        return size > limit and not (size == limit + 1 and self._out.whole().endswith(b"\n"))

    def _said(self) -> str:
        """The end of stderr, or of stdout when there is nothing there: many tools complain on stdout."""
        for sink in (self._err, self._out):
            text = sink.tail().decode("utf-8", "replace").strip()
            if text:
                return f": {text}"
        return ""


_NO_ANSWER: Final = frozenset({Reason.KILLED, Reason.DISPATCH_ERROR})
_TOO_LARGE: Final = (
    "the result is larger than {} bytes (max_result_bytes of [limits]); write it to a file and print the path"
)


def _drain(sink: Sink) -> None:
    """Read what lies in the pipe, without waiting for more."""
    for _ in range(_DRAIN_BYTES // CHUNK_BYTES):
        if not is_ready(sink.fd) or not sink.read():
            return
