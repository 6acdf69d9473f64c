"""Two more bodies of the executor: one that a test plays by hand, one that answers from a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from interlock.dispatch.base import Job, Outcome, Report, Request
from interlock.driver.clock import Clock
from interlock.model.events import Process
from interlock.testing.build import aborted

Script = Callable[["HandExecutor"], Iterator[list[Report]]]
"""A generator: each `wait` of the loop runs it to its next `yield`, whose value the wait returns."""


class HandExecutor:
    """Body of `run.executor.Executor` in which nothing ends unless the script says so."""

    def __init__(self, clock: Clock, script: Script, *, places: int = 100) -> None:
        self.places = places
        self.started: list[Request] = []
        self.running: dict[str, Request] = {}
        self.cancelled: list[float] = []
        self.waits: list[float | None] = []
        self.woken = 0
        self.closed = False
        self._clock = clock
        self._script = script(self)

    def capacity(self, job: Job, wanted: int) -> list[Process | None]:  # noqa: ARG002 - the protocol's
        """Offer the free ones of `places`."""
        return [None] * min(wanted, self.places - len(self.running))

    def start(self, requests: list[Request]) -> None:
        """Take note."""
        for request in requests:
            self.started.append(request)
            self.running[request.dispatch] = request

    def wait(self, timeout_s: float | None) -> list[Report]:
        """Let the script go on."""
        self.waits.append(timeout_s)
        try:
            return next(self._script)
        except StopIteration:
            raise AssertionError(f"the script is over, yet the loop waits for {list(self.running)}") from None

    def cancel(self, dispatches: list[str] | None, grace_s: float) -> None:  # noqa: ARG002 - the protocol's
        """Take note; ends are the script's business."""
        self.cancelled.append(grace_s)

    def tidy(self, step: int) -> None:
        """Nothing is left behind here."""

    def wake(self) -> None:
        """Take note."""
        self.woken += 1

    def close(self) -> None:
        """Take note."""
        self.closed = True

    def names(self) -> list[str]:
        """Ids of the units under way, in the order of their start."""
        return [request.unit_id for request in self.running.values()]

    def end(self, unit_id: str, outcome: Outcome) -> Outcome:
        """Return the end of the unit's running attempt, and forget it."""
        dispatch = next(name for name, request in self.running.items() if request.unit_id == unit_id)
        del self.running[dispatch]
        return msgspec.structs.replace(outcome, dispatch=dispatch, ended_at=self._clock.wall_ms())

    def end_all(self, outcome: Outcome) -> list[Report]:
        """Return the ends of all that runs."""
        return [self.end(unit_id, outcome) for unit_id in self.names()]


class ScriptedExecutor:
    """Body of `run.executor.Executor` in which everything ends at once, as `answer` says."""

    def __init__(self, clock: Clock, answer: Callable[[Request], Outcome], *, places: int = 100) -> None:
        self.started: list[Request] = []
        self.closed = False
        self._clock = clock
        self._answer = answer
        self._places = places
        self._running: dict[str, Request] = {}
        self._cancelled = False

    def capacity(self, job: Job, wanted: int) -> list[Process | None]:  # noqa: ARG002 - the protocol's
        """Offer the free ones of `places`."""
        return [None] * min(wanted, self._places - len(self._running))

    def start(self, requests: list[Request]) -> None:
        """Take them in."""
        self.started.extend(requests)
        self._running.update({request.dispatch: request for request in requests})

    def wait(self, timeout_s: float | None) -> list[Report]:  # noqa: ARG002 - nothing is waited for
        """Return the ends of all that was started."""
        ended, self._running = self._running, {}
        return [self._end(request) for request in ended.values()]

    def cancel(self, dispatches: list[str] | None, grace_s: float) -> None:  # noqa: ARG002 - all or nothing
        """End what runs as aborted."""
        self._cancelled = True

    def tidy(self, step: int) -> None:
        """Nothing is left behind here."""

    def wake(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Take note."""
        self.closed = True

    def _end(self, request: Request) -> Outcome:
        outcome = aborted() if self._cancelled else self._answer(request)
        return msgspec.structs.replace(outcome, dispatch=request.dispatch, ended_at=self._clock.wall_ms())
