"""An attempt: what it was asked to do, which process it has, and the wish to end it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from interlock.dispatch.base import Outcome, Request
from interlock.model.events import Process
from interlock.model.states import Reason

KILL_AFTER_S: Final = 5.0


class Ending(msgspec.Struct, frozen=True):
    """Why an attempt is being ended by us. `reason` is None for a cancel."""

    reason: Reason | None
    error: str


class Cancel(msgspec.Struct, frozen=True):
    """A wish to end, from outside. `kill_at` is monotonic."""

    kill_at: float


class Attempt:
    """An attempt's life between `start` and its outcome. `cancel` may be called from any thread, the rest from one."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.process: Process | None = None
        self.has_process = False
        """Set from the moment that something runs; which process it is may be found out later."""
        self.started_at = 0
        self.context: bytes | None = None
        """The path of its context file."""
        self._cancel: Cancel | None = None
        self.wake: Callable[[], None] | None = None
        """Set while somebody waits on it."""
        self.quiet = False
        """Its process is not reported: it is a part of an attempt that has told of one."""

    def cancel(self, grace_s: float) -> None:
        """Ask it to end; a later wish can only make it sooner."""
        kill_at = time.monotonic() + grace_s
        if self._cancel is None or kill_at < self._cancel.kill_at:
            self._cancel = Cancel(kill_at)
        if (wake := self.wake) is not None:
            wake()

    @property
    def cancelled(self) -> Cancel | None:
        """The wish to end, if there is one."""
        return self._cancel

    def never_began(self, reason: Reason | None, error: str, *, answered: bool = True) -> Outcome:
        """Return the outcome of an attempt that surely had no effect; a None reason is a cancel."""
        now = now_ms()
        return Outcome(
            dispatch=self.request.dispatch,
            status="aborted" if reason is None else "failed",
            reason=reason or Reason.ABORTED,
            error=error,
            answered=answered,
            process=self.process,
            started_at=self.started_at or now,
            ended_at=now,
        )


def now_ms() -> int:
    """Wall-clock epoch milliseconds."""
    return time.time_ns() // 1_000_000
