"""One more body of the executor, which a test plays by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgspec

from interlock.dispatch.base import Job, Outcome, Report, Request
from interlock.driver.clock import Clock
from interlock.model.actions import Ahead
from interlock.model.events import Process
from interlock.model.plan import Plan

Script = Callable[["HandExecutor"], Iterator[list[Report]]]
"""A generator: each `wait` of the loop runs it to its next `yield`, whose value the wait returns."""


class HandExecutor:
    """Body of `driver.executor.Executor` in which nothing ends unless the script says so."""

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

    def prepare(self, plan: Plan, ended: Collection[str]) -> None:
        """Nothing has to be set up here."""

    def capacity(self, job: Job, wanted: int, ahead: int = 0) -> list[Process | None]:  # noqa: ARG002 - the protocol's
        """Offer the free ones of `places`."""
        return [None] * min(wanted, self.places - len(self.running))

    def ahead(self, run_id: str) -> dict[int, Ahead]:  # noqa: ARG002 - the protocol's
        """Nothing waits in line here."""
        return {}

    def recall(self, run_id: str) -> None:
        """Nothing waits in line here."""

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

    def tidy(self, steps: Collection[int]) -> list[str]:  # noqa: ARG002 - the protocol's
        """Nothing is left behind here."""
        return []

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
