"""Watches commands while they are young, in the thread that polls anyway; one that lasts moves to a thread of its own.

Most commands of a wide map end within milliseconds. A thread for each would take the interpreter from the others, and
from the one that commits, more often than it would have something to do.
Guarantees: what belongs to the polling thread never waits; an attempt that is 0.2 s old, has to be ended or is unwatched because the polling
thread is held up elsewhere is watched by another thread, which keeps its limits; every attempt that `begin` takes ends
in exactly one Outcome, from here or from there.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from interlock.dispatch.attempt import Attempt
from interlock.dispatch.base import NEVER, Outcome, Report
from interlock.dispatch.commands.exits import is_ready
from interlock.dispatch.commands.launch import Launcher
from interlock.dispatch.commands.program import BusyError
from interlock.dispatch.commands.supervisor import Supervisor

_SETTLED_S: Final = 0.01
"""Once a process has lived for as long as this, what it says is taken in as it comes, and its start is worth an entry
of its own in the journal: of one that ends before, the end tells all."""
_YOUNG_S: Final = 0.1
_SHORT_MS: Final = 1_000
"""A time limit below this is watched by a thread from the start."""


class Pump(msgspec.Struct, frozen=True):
    """The thread that polls: its poller, and where it takes reports without being woken."""

    poller: select.epoll
    report: Callable[[Report], None]
    nudge: Callable[[], None]
    """Called from any thread, it makes the poller say something."""


class Owner(Protocol):
    """What has the threads."""

    def take_over(self, attempt: Attempt, supervisor: Supervisor | None) -> None:
        """Go on with an attempt in another thread, from its start when nothing supervises it yet."""
        ...

    def ended(self, attempt: Attempt, outcome: Outcome, report: Callable[[Report], None] | None = None) -> None:
        """Forget the attempt and report how it ended, from any thread unless there is a `report`."""
        ...

    def fault(self, attempt: Attempt, error: Exception) -> Outcome:
        """Make an outcome of an error of ours."""
        ...


class _Child:
    """A young attempt."""

    __slots__ = ("attempt", "fds", "since", "supervisor")

    def __init__(self, attempt: Attempt, supervisor: Supervisor) -> None:
        self.attempt = attempt
        self.supervisor = supervisor
        self.since = time.monotonic()
        self.fds: set[int] = set()
        """Those that the supervisor had watched when last looked at."""


class Nursery:
    """`on_event`, `next_tick` and `tick` belong to the polling thread; the rest is safe from any."""

    def __init__(self, pump: Pump, launcher: Launcher, owner: Owner) -> None:
        self._pump = pump
        self._launcher = launcher
        self._owner = owner
        self._lock = threading.Lock()
        self._by_fd: dict[int, _Child] = {}
        self._children: dict[str, _Child] = {}
        self._untold: deque[_Child] = deque()
        self._guard: threading.Thread | None = None
        self._asleep = False
        self._wanted = threading.Event()
        self._closing = threading.Event()

    def takes(self, attempt: Attempt) -> bool:
        """Tell whether the attempt can begin here: without waiting long, and without a limit that may soon be reached."""
        request, job = attempt.request, attempt.request.job
        if request.worktree is not None or job.merge is not None or job.idle_timeout_ms is not None:
            return False
        if job.timeout_ms is not None and job.timeout_ms < _SHORT_MS:
            return False
        return self._launcher.is_ready(job) and self._is_guarded()

    def begin(self, attempt: Attempt) -> Supervisor | None:
        """Start the attempt's process, or report why not. One that has to be ended at once is given back."""
        begun: Supervisor | Outcome | None = None
        try:
            begun = self._launcher.begin(attempt, patient=False)
            if isinstance(begun, Supervisor):
                return None if self._adopt(_Child(attempt, begun)) else begun
        except BusyError:
            self._launcher.release(attempt)
            self._owner.take_over(attempt, None)
            return None
        except Exception as error:  # noqa: BLE001 - a fault of ours must end as an outcome, or the run would wait for ever
            begun = self._broken(attempt, begun, error)
        self._launcher.release(attempt)
        self._owner.ended(attempt, begun)
        return None

    def _broken(self, attempt: Attempt, begun: Supervisor | Outcome | None, error: Exception) -> Outcome:
        if isinstance(begun, Supervisor):
            # whatever it was, nothing is left behind
            with contextlib.suppress(Exception):
                begun.end(self._pump.poller)
        return self._owner.fault(attempt, error)

    def _adopt(self, child: _Child) -> bool:
        """Take the child in, unless it has to be ended or its exit would be no event."""
        if not child.supervisor.begin():
            return False
        with self._lock:
            if child.attempt.cancelled is not None:
                return False
            # most say little and end at once: that is one event instead of three
            child.supervisor.attach(self._pump.poller, exit_only=True)
            self._children[child.attempt.request.dispatch] = child
            self._note(child)
        self._untold.append(child)
        if self._asleep:
            self._wanted.set()
        return True

    def on_event(self, fd: int) -> bool:
        """Take in what is ready; tell whether the descriptor is one of ours."""
        with self._lock:
            child = self._by_fd.get(fd)
            if child is None:
                return False
            if not is_ready(fd):
                # what was polled was said of a descriptor that had this number until just now
                return True
            supervisor = child.supervisor
            try:
                supervisor.take(fd, self._pump.poller)
                if supervisor.troubled:
                    self._hand_over(child)
                    return True
                if not supervisor.done:
                    self._note(child)
                    return True
                self._drop(child)
                outcome = supervisor.end(self._pump.poller)
            except Exception as error:  # noqa: BLE001 - as in begin
                self._drop(child)
                outcome = self._broken(child.attempt, supervisor, error)
        # the journal wants no entry of a start whose end comes along, but whoever listens is told of both
        supervisor.tell(self._pump.report)
        self._launcher.release(child.attempt)
        self._owner.ended(child.attempt, outcome, self._pump.report)
        return True

    @property
    def next_tick(self) -> float:
        """When (monotonic) `tick` is due."""
        untold = self._untold
        while untold and untold[0].attempt.request.dispatch not in self._children:
            untold.popleft()
        return untold[0].since + _SETTLED_S if untold else NEVER

    def tick(self, now: float) -> None:
        """Listen to the processes that have lived for a while, and tell of them."""
        while self.next_tick <= now:
            child = self._untold.popleft()
            with self._lock:
                if child.attempt.request.dispatch in self._children:
                    child.supervisor.attach(self._pump.poller)
                    self._note(child)
                    child.supervisor.tell(self._pump.report)

    def hand_over(self, dispatch: str) -> None:
        """Let a thread go on with the attempt, if it is here."""
        with self._lock:
            child = self._children.get(dispatch)
            if child is not None:
                self._hand_over(child)

    def _hand_over(self, child: _Child) -> None:
        child.supervisor.detach(self._pump.poller)
        self._drop(child)
        self._owner.take_over(child.attempt, child.supervisor)

    def _drop(self, child: _Child) -> None:
        self._children.pop(child.attempt.request.dispatch, None)
        for fd in child.fds:
            del self._by_fd[fd]
        child.fds = set()

    def _note(self, child: _Child) -> None:
        """Note which descriptors are the child's now."""
        now = child.supervisor.watched
        for fd in child.fds - now:
            del self._by_fd[fd]
        for fd in now - child.fds:
            self._by_fd[fd] = child
        child.fds = set(now)

    def close(self) -> None:
        """Let the guard go; nothing may be here any more. Idempotent."""
        self._closing.set()
        self._wanted.set()

    # the guard: what keeps the attempts from depending on the polling thread

    def _is_guarded(self) -> bool:
        """Start the guard; tell whether there is one."""
        if self._guard is None:
            guard = threading.Thread(target=self._watch, name="command-guard", daemon=True)
            try:
                guard.start()
            except RuntimeError:
                return False
            self._guard = guard
        return True

    def _watch(self) -> None:
        while not self._closing.wait(_YOUNG_S):
            old = time.monotonic() - _YOUNG_S
            with self._lock:
                for child in [child for child in self._children.values() if child.since <= old]:
                    self._hand_over(child)
                self._asleep = not self._children
            if self._asleep:
                self._wanted.wait()
                self._wanted.clear()
                self._asleep = False
