"""How many units may wait in line behind the one that a warm worker has, so that it need not wait for a commit.

Guarantees: only functions that were seen to be quick get a line, and a line is never longer than what its worker is
expected to do in `LOOK_US`; a unit in line has an open attempt and has not begun; a line adds no worker.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from interlock.dispatch.base import Job, Request
from interlock.dispatch.pace import Pace
from interlock.dispatch.python.peer import Peer
from interlock.model.actions import Ahead
from interlock.model.events import Process

LOOK_US: Final = 20_000
SLOW_US: Final = 10_000
"""Commits cost too little beside such units for a line to be worth it."""


class Lines:
    """The lines of all workers."""

    def __init__(self, peers: dict[int, Peer]) -> None:
        self._peers = peers
        self._paces: defaultdict[tuple[str, int], Pace] = defaultdict(Pace)
        """By run and step, in microseconds."""

    def note(self, job: Job, took_us: int) -> None:
        """Learn from an answer."""
        if job.idle_timeout_ms is None:
            self._paces[job.run_id, job.step].note(took_us)

    def _each(self, run_id: str, step: int) -> int:
        pace = self._paces.get((run_id, step))
        return 0 if pace is None else pace.each(LOOK_US, SLOW_US)

    def offer(self, job: Job, wanted: int, fresh: Iterable[Process | None]) -> list[Process | None]:
        """Promise up to `wanted` places in line: behind units of the job, and workers that are just offered to it."""
        each = self._each(job.run_id, job.step)
        if wanted <= 0 or each == 0:
            return []
        offered = {process.pid for process in fresh if process is not None}
        behind = [
            peer
            for pid, peer in self._peers.items()
            if (pid in offered or (peer.request is not None and peer.request.job is job)) and peer.usable
        ]
        found: list[Process | None] = []
        while len(found) < wanted:
            before = len(found)
            for peer in behind:
                if len(found) < wanted and len(peer.line) + peer.promised < each:
                    peer.promised += 1
                    found.append(peer.process)
            if len(found) == before:
                break
        return found

    def behind(self, request: Request) -> Peer | None:
        """Return the worker in whose line the request can wait."""
        peer = None if request.process is None else self._peers.get(request.process.pid)
        if peer is None or not peer.usable or peer.request is None or peer.request.job is not request.job:
            return None
        return peer

    def take_back(self) -> None:
        """Forget what was promised and not used."""
        for peer in self._peers.values():
            peer.promised = 0

    def state(self, run_id: str) -> dict[int, Ahead]:
        """Return, by step, how many attempts wait in line and how many may behind each worker."""
        waiting: Counter[int] = Counter()
        for peer in self._peers.values():
            if peer.line and peer.line[0].job.run_id == run_id:
                waiting[peer.line[0].job.step] += len(peer.line)
        steps = (step for run, step in self._paces if run == run_id)
        return {step: Ahead(waiting=waiting[step], each=self._each(run_id, step)) for step in steps}
