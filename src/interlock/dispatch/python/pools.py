"""The Python workers of one driver: a pool for each path that modules are sought on.

A run and its child runs may lie in several folders, each with modules of its own, or be frozen with a module before and
after it was changed, and two modules of one name can't live in one process. Most drivers have one pool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from interlock.dispatch.base import NEVER, Job, Request
from interlock.model.actions import Ahead
from interlock.model.events import Process
from interlock.model.plan import PythonFunction

if TYPE_CHECKING:
    from interlock.dispatch.python.pool import PythonPool

Path = tuple[str, ...]


class PythonPools:
    """What is asked of one pool, asked of the one that a job belongs to, or of all."""

    def __init__(self, make: Callable[[Path], PythonPool]) -> None:
        self._make = make
        self._pools: dict[Path, list[tuple[PythonPool, dict[str, str]]]] = {}
        """By path: pools, and the hashes of the modules that their workers load."""
        self._all: list[PythonPool] = []
        self._last: tuple[Job, PythonPool] | None = None

    def _of(self, job: Job) -> PythonPool:
        last = self._last
        if last is None or last[0] is not job:
            last = self._last = (job, self._find(job))
        return last[1]

    def _find(self, job: Job) -> PythonPool:
        name = job.target.module if isinstance(job.target, PythonFunction) else ""
        sha256 = "" if job.frozen is None else job.frozen.sha256
        for pool, hashes in self._of_path(job.python_path):
            if hashes.setdefault(name, sha256) == sha256:
                return pool
        return self._add(job.python_path, {name: sha256})

    def _of_path(self, path: Path) -> list[tuple[PythonPool, dict[str, str]]]:
        return self._pools.setdefault(path, [])

    def _add(self, path: Path, hashes: dict[str, str]) -> PythonPool:
        pool = self._make(path)
        self._of_path(path).append((pool, hashes))
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
        pools = self._of_path(path)
        (pools[0][0] if pools else self._add(path, {})).prepare()

    def offer(self, job: Job, wanted: int, ahead: int) -> list[Process | None]:
        """Offer workers, then places in line."""
        return self._of(job).offer(job, wanted, ahead)

    def start(self, request: Request, now: float, now_ms: int) -> None:
        """Send the unit to its worker."""
        self._of(request.job).start(request, now, now_ms)

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
