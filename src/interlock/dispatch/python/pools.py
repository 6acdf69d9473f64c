"""The Python workers of one driver: a pool for each path that modules are sought on.

A run and its child runs may lie in several folders, each with modules of its own, and two modules of one name can't live
in one process. Most drivers have one pool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from interlock.dispatch.base import NEVER, Job, Request
from interlock.model.actions import Ahead
from interlock.model.events import Process

if TYPE_CHECKING:
    from interlock.dispatch.python.pool import PythonPool

Path = tuple[str, ...]


class PythonPools:
    """What is asked of one pool, asked of the one that a job belongs to, or of all."""

    def __init__(self, make: Callable[[Path], PythonPool]) -> None:
        self._make = make
        self._pools: dict[Path, PythonPool] = {}
        self._all: list[PythonPool] = []

    def _of(self, path: Path) -> PythonPool:
        pool = self._pools.get(path)
        if pool is None:
            pool = self._pools[path] = self._make(path)
            self._all.append(pool)
        return pool

    @property
    def in_flight(self) -> int:
        """Units at work."""
        return sum(pool.in_flight for pool in self._all)

    @property
    def workers(self) -> int:
        """Workers alive."""
        return sum(len(pool.sockets) for pool in self._all)

    @property
    def next_tick(self) -> float:
        """When (monotonic) `tick` has something to do."""
        return min((pool.next_tick for pool in self._all), default=NEVER)

    def prepare(self, path: Path) -> None:
        """Start the interpreter of a path."""
        self._of(path).prepare()

    def offer(self, job: Job, wanted: int, ahead: int) -> list[Process | None]:
        """Offer workers, then places in line."""
        return self._of(job.python_path).offer(job, wanted, ahead)

    def start(self, request: Request, now: float, now_ms: int) -> None:
        """Send the unit to its worker."""
        self._of(request.job.python_path).start(request, now, now_ms)

    def take_back(self) -> None:
        """Forget the offers that were not used."""
        for pool in self._all:
            pool.take_back()

    def ahead(self, run_id: str) -> dict[int, Ahead]:
        """Return, by step of the run, what waits in line and may."""
        if len(self._all) == 1:
            return self._all[0].ahead(run_id)
        return {step: line for pool in self._all for step, line in pool.ahead(run_id).items()}

    def recall(self, run_id: str) -> None:
        """Give back what waits in line."""
        for pool in self._all:
            pool.recall(run_id)

    def go_on(self) -> None:
        """Let go on what was held up until the loop had looked."""
        for pool in self._all:
            pool.go_on()

    def of_socket(self, fd: int) -> PythonPool | None:
        """Return the pool whose worker has that socket."""
        return next((pool for pool in self._all if fd in pool.sockets), None)

    def on_handler(self, fd: int) -> None:
        """Another of their descriptors is ready."""
        for pool in self._all:
            pool.on_handler(fd)

    def tick(self, now: float) -> None:
        """Do what is due."""
        for pool in self._all:
            pool.tick(now)

    def cancel(self, dispatches: frozenset[str] | None, grace_s: float) -> None:
        """Ask attempts (None: all) to end."""
        for pool in self._all:
            pool.cancel(dispatches, grace_s)

    def close(self) -> None:
        """End all workers."""
        for pool in self._all:
            pool.close()
