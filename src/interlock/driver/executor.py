"""Where work runs, as the loop sees it. A dry run, a replay and a cluster are more bodies of this protocol."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from interlock.dispatch.base import Job, Report, Request
from interlock.model.actions import Ahead
from interlock.model.events import Process
from interlock.model.plan import Plan


class Executor(Protocol):
    """Where work runs. Capacity, start, wait, cancel, and what cleaning up takes; nothing here decides."""

    def prepare(self, plan: Plan, ended: Collection[str]) -> None:
        """Begin to set up what the run will want first, now that those steps have ended; never waits, never raises."""
        ...

    def capacity(self, job: Job, wanted: int, ahead: int = 0) -> list[Process | None]:
        """Offer up to `wanted` places for attempts of `job`: a warm worker's identity, or None for a new process.

        After them up to `ahead` places in line behind these and others of the same job, each as the worker to wait for.
        Places not used by the next `start` are simply offered again.
        """
        ...

    def ahead(self, run_id: str) -> Mapping[int, Ahead]:
        """Return, by step of the run, how many attempts wait in line and how many may behind each worker."""
        ...

    def recall(self, run_id: str) -> None:
        """Give back what of the run waits in line and has not begun: aborted outcomes follow."""
        ...

    def start(self, requests: list[Request]) -> None:
        """Begin the attempts; never blocks on them and never raises for one of them: failures are outcomes."""
        ...

    def wait(self, timeout_s: float | None) -> list[Report]:
        """Return what has happened, waiting at most `timeout_s` (None: until something does, or `wake`)."""
        ...

    def cancel(self, dispatches: list[str] | None, grace_s: float) -> None:
        """Ask the attempts (None: all) to end: SIGTERM to their trees, SIGKILL after `grace_s`. Outcomes follow."""
        ...

    def tidy(self, steps: Collection[int]) -> list[str]:
        """End what ended attempts of these steps left running; the steps are over. Return what a person should know."""
        ...

    def wake(self) -> None:
        """Make a running or the next `wait` return at once. Safe in a signal handler."""
        ...

    def close(self) -> None:
        """End everything that is left, workers and helpers included. Idempotent."""
        ...
