"""Commands of one job that wait in line behind those under way, so that no place waits for a commit.

Guarantees: only commands that were seen to be quick get a line, and a line is never longer than what those under way are
expected to do in `LOOK_MS`; a command in line has an open attempt and has not begun; it begins only in the place of one
that has ended, after a failed one only once the driver looked at it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from interlock.dispatch.attempt import Attempt
from interlock.dispatch.base import Job
from interlock.dispatch.pace import Pace
from interlock.model.actions import Ahead

LOOK_MS: Final = 25
SLOW_MS: Final = 25
"""Commits cost too little beside such commands for a line to be worth it."""
_LASTING_MS: Final = 100.0


class _Line:
    """One job's. Its pace is in milliseconds."""

    __slots__ = ("job", "pace", "stopped", "under_way", "waiting")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.under_way = 0
        self.waiting: deque[Attempt] = deque()
        self.stopped: list[Attempt] = []
        """Those that have a place and wait for a word after a failure."""
        self.pace = Pace()

    @property
    def each(self) -> int:
        """How many may wait behind each that is under way."""
        return self.pace.each(LOOK_MS, SLOW_MS)

    def take(self, chosen: Callable[[Attempt], bool]) -> list[Attempt]:
        """Take some out."""
        stopped, waiting = [*filter(chosen, self.stopped)], [*filter(chosen, self.waiting)]
        if stopped or waiting:
            self.under_way -= len(stopped)
            self.stopped = [attempt for attempt in self.stopped if not chosen(attempt)]
            self.waiting = deque(attempt for attempt in self.waiting if not chosen(attempt))
        return stopped + waiting


class CommandLines:
    """The lines of all jobs. Used by one thread at a time."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self.waiting = 0
        """In all lines."""

    def began(self, job: Job) -> None:
        """Count a command that takes a place of its own."""
        if job.accepts_any_exit:
            # a check or a probe: nothing of its step waits for one
            return
        line = self._lines.get(job.key)
        if line is None:
            line = self._lines[job.key] = _Line(job)
        line.under_way += 1

    def ended(self, job: Job, took_ms: int, *, good: bool) -> Attempt | None:
        """Learn from an end; return the command that may begin in its place."""
        line = self._lines.get(job.key)
        if line is None:
            return None
        line.under_way -= 1
        line.pace.note(took_ms)
        if not line.waiting:
            return None
        self.waiting -= 1
        line.under_way += 1
        successor = line.waiting.popleft()
        if good:
            return successor
        line.stopped.append(successor)
        return None

    def lasts(self, job: Job) -> None:
        """Let none wait behind the job's commands until quick ones have ended again."""
        line = self._lines.get(job.key)
        if line is not None:
            line.pace.note(_LASTING_MS)

    def go_on(self) -> list[Attempt]:
        """Return those that may begin since the failures before them were looked at."""
        found: list[Attempt] = []
        for line in self._lines.values():
            found += line.stopped
            line.stopped = []
        return found

    def offer(self, job: Job, wanted: int, fresh: int) -> int:
        """Return how many may join behind those under way and `fresh` ones that are about to begin."""
        line = self._lines.get(job.key)
        return 0 if line is None else max(0, min(wanted, line.each * (line.under_way + fresh) - len(line.waiting)))

    def join(self, attempt: Attempt) -> bool:
        """Let a command wait; False when there is nothing left to wait for."""
        line = self._lines.get(attempt.request.job.key)
        if line is None or not line.under_way:
            return False
        line.waiting.append(attempt)
        self.waiting += 1
        return True

    def take(self, chosen: Callable[[Attempt], bool]) -> list[Attempt]:
        """Take those out that are called back."""
        taken = [attempt for line in self._lines.values() for attempt in line.take(chosen)]
        self.waiting = sum(len(line.waiting) for line in self._lines.values())
        return taken

    def forget(self, job_key: str) -> None:
        """Drop the line of a job that is over."""
        self._lines.pop(job_key, None)

    def state(self, run_id: str) -> dict[int, Ahead]:
        """Return, by step, how many attempts wait in line and how many may behind each under way."""
        found: dict[int, Ahead] = {}
        for line in self._lines.values():
            if line.job.run_id == run_id and line.pace.mean is not None:
                # of an earlier loop nothing waits any more
                found[line.job.step] = Ahead(waiting=len(line.waiting), each=line.each)
        return found
