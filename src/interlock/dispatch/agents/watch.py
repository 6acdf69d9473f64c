"""Waits on behalf of one prompt that a long-lived helper answers: its time limit, its idle limit, its cancel.

Guarantees: the reason for ending is fixed when it is raised; progress is what the agent says, and processor time of
the processes that are named to it.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Mapping
from typing import Final

from interlock.dispatch.attempt import KILL_AFTER_S, Attempt, Ending
from interlock.model.durations import spelled_duration
from interlock.model.states import Reason

_LOOK_S: Final = 5.0
_BUSY_SHARE: Final = 0.05
"""An agent that waits for its model turns its event loop over; real work uses more of a processor than this."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class EndedError(Exception):
    """The prompt has to end now."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.error)
        self.ending = ending


class Watch:
    """Used by one thread; `poller` is that thread's, with `wake_fd` registered."""

    def __init__(self, attempt: Attempt, poller: select.poll, wake_fd: int) -> None:
        job = attempt.request.job
        now = time.monotonic()
        self._attempt = attempt
        self._poller = poller
        self._wake_fd = wake_fd
        self._timeout_ms = job.timeout_ms
        self._idle_ms = job.idle_timeout_ms
        self._deadline = None if job.timeout_ms is None else now + job.timeout_ms / 1000
        self._progress_at = now
        self._looked_at = now
        self._ticks = 0
        self.cpu_ticks: Callable[[], int] = lambda: 0
        """What to ask for processor time."""

    def progress(self) -> None:
        """Note that the agent said something."""
        self._progress_at = time.monotonic()

    def wait(self, seconds: float | None, wanted: Mapping[int, int] = {}) -> set[int]:
        """Wait until one of the descriptors is ready for what is wanted of it, at most `seconds`; return which are.

        Raises EndedError.
        """
        until = None if seconds is None else time.monotonic() + seconds
        for fd, events in wanted.items():
            self._poller.register(fd, events)
        try:
            while True:
                self._judge()
                ready = self._poll(until)
                if ready or (until is not None and time.monotonic() >= until):
                    return ready
        finally:
            for fd in wanted:
                self._poller.unregister(fd)

    def grace_s(self) -> float:
        """How long a polite end may take: what a cancel leaves, else the usual time before a kill."""
        cancel = self._attempt.cancelled
        return KILL_AFTER_S if cancel is None else min(KILL_AFTER_S, max(0.0, cancel.kill_at - time.monotonic()))

    def _poll(self, until: float | None) -> set[int]:
        due = [at for at in (until, self._deadline, self._next_look()) if at is not None]
        timeout_ms = max(0.0, min(due) - time.monotonic()) * 1000 if due else None
        ready = {fd for fd, _ in self._poller.poll(timeout_ms)}
        if self._wake_fd in ready:
            os.read(self._wake_fd, 64)
        return ready - {self._wake_fd}

    def _next_look(self) -> float | None:
        if self._idle_ms is None:
            return None
        return self._looked_at + min(_LOOK_S, max(0.05, self._idle_ms / 4000))

    def _judge(self) -> None:
        now = time.monotonic()
        if self._attempt.cancelled is not None:
            raise EndedError(Ending(None, "cancelled"))
        if self._deadline is not None and now >= self._deadline:
            raise EndedError(Ending(Reason.TIMEOUT, f"timed out after {spelled_duration(self._timeout_ms)}"))
        look_at = self._next_look()
        if self._idle_ms is None or look_at is None or now < look_at:
            return
        ticks = self.cpu_ticks()
        if abs(ticks - self._ticks) > _BUSY_SHARE * _TICKS_PER_S * (now - self._looked_at):
            self._progress_at = now
        self._ticks, self._looked_at = ticks, now
        if now >= self._progress_at + self._idle_ms / 1000:
            raise EndedError(
                Ending(Reason.IDLE_TIMEOUT, f"no output and no processor time for {spelled_duration(self._idle_ms)}")
            )
