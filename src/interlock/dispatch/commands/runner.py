"""Runs commands and scripts: a few threads start them, the thread that polls watches them, one each those that last.

Guarantees: `start` and `cancel` never block and never raise for one attempt; every started request gets exactly one
Outcome through `report`, from a thread of the runner, or through the pump's; after `close` no process of this driver
is left.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from interlock.dispatch.attempt import Attempt
from interlock.dispatch.base import NEVER, Job, Outcome, Report, Request
from interlock.dispatch.commands.launch import Launcher
from interlock.dispatch.commands.lines import CommandLines
from interlock.dispatch.commands.nursery import Nursery, Pump
from interlock.dispatch.commands.supervisor import Supervisor
from interlock.dispatch.env.clean import clean
from interlock.dispatch.env.redact_base import ResolvedEnv
from interlock.dispatch.isolated import Isolation
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.processes.leftovers import end_strays
from interlock.dispatch.processes.markers import Marker
from interlock.dispatch.processes.reaper import Reaper
from interlock.model.actions import Ahead
from interlock.model.states import Reason

_JOIN_S: Final = 10.0
_MIDWIVES: Final = 2
_CALLED_BACK: Final = (None, "called back before it began")


class Wake:
    """Called from any thread, it makes `fd` readable for the one that polls it."""

    def __init__(self) -> None:
        self.fd, self._writing = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._writing, False)

    def __call__(self) -> None:
        """Make it readable."""
        with contextlib.suppress(OSError):
            os.write(self._writing, b"w")

    def close(self) -> None:
        """Release both ends; nobody may call it any more."""
        os.close(self.fd)
        os.close(self._writing)


class Births:
    """Young attempts that wait for their process, and the threads that see to it. Safe from any thread.

    More threads than a few would only take the interpreter from one another; one alone would be held up by every
    program that takes its time to load.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Attempt] = deque()
        self._midwives = 0
        self._count = 0
        self._none = threading.Event()
        self._none.set()

    def add(self, attempt: Attempt) -> bool:
        """Add one; tell whether one more thread should see to it."""
        with self._lock:
            self._waiting.append(attempt)
            self._count += 1
            self._none.clear()
            more = self._midwives < _MIDWIVES
            self._midwives += more
            return more

    def take(self) -> Attempt | None:
        """Return the next; None lets the thread go."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._midwives -= 1
            return None

    def done(self) -> bool:
        """Count one as born; tell whether it was the last."""
        with self._lock:
            self._count -= 1
            if self._count:
                return False
            self._none.set()
            return True

    def wait(self, timeout_s: float) -> None:
        """Return when all are born, or after `timeout_s`."""
        self._none.wait(timeout_s)


class CommandRunner:
    """Where Command and Script targets run. A `reaper` that is given stays its owner's to close.

    With a `pump`, `start`, `on_event` and `tick` are called in its thread, the latter for what its poller says and when
    `next_tick` is due. Without one every attempt has a thread from the start.
    """

    def __init__(  # noqa: PLR0913 - what is not in every runner is by name
        self,
        report: Callable[[Report], None],
        env_for: Callable[[Job], ResolvedEnv],
        log: RunLog,
        scratch: Path,
        marker: Marker,
        *,
        environ: Mapping[str, str] | None = None,
        reaper: Reaper | None = None,
        isolation: Isolation | None = None,
        pump: Pump | None = None,
    ) -> None:
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            # inherited from whoever started us; exit codes would be lost, and children would inherit it too
            with contextlib.suppress(ValueError):
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        base = clean(os.environ if environ is None else environ)
        self._report = report
        self._marker = marker
        self._environ = environ
        self._isolation = isolation or Isolation(marker, environ)
        self._reaper = reaper or Reaper(marker, base)
        self._owns_reaper = reaper is None
        self._launcher = Launcher(report, env_for, log, scratch, marker, base, self._reaper)
        self._nursery = None if pump is None else Nursery(pump, self._launcher, self)
        self._pump = pump
        self._queue: queue.SimpleQueue[tuple[Attempt, Supervisor | None] | Births | None] = queue.SimpleQueue()
        self._births = Births()
        self._lines = CommandLines()
        self._lock = threading.Lock()
        self._attempts: dict[str, Attempt] = {}
        self._dispatches: dict[str, set[str]] = {}
        """By job key: whose children may have strayed."""
        self._threads: list[threading.Thread] = []
        self._threaded = 0
        """Attempts that have, or wait for, a thread."""
        self._closed = False

    @property
    def under_way(self) -> int:
        """How many attempts have begun and not ended."""
        return len(self._attempts)

    @property
    def waiting(self) -> int:
        """How many wait in line."""
        return self._lines.waiting

    def offer(self, job: Job, wanted: int, fresh: int) -> int:
        """Return how many attempts of the job may join its line, behind those under way and `fresh` ones."""
        with self._lock:
            return self._lines.offer(job, wanted, fresh)

    def ahead(self, run_id: str) -> dict[int, Ahead]:
        """Return, by step of the run, what waits in line and may."""
        with self._lock:
            return self._lines.state(run_id)

    def start(self, request: Request) -> None:
        """Begin the attempt, or let it wait in line; its reports follow."""
        attempt = Attempt(request)
        with self._lock:
            young = self._nursery is not None and self._nursery.takes(attempt) and self._is_threaded()
            refused = None if young else self._refusal()
            if request.ahead and not (young and self._lines.join(attempt)):
                refused = _CALLED_BACK
            elif refused is None and not request.ahead:
                self._lines.began(request.job)
                self._begin(attempt, young=young)
        if refused is not None:
            self._report(attempt.never_began(*refused))

    def _begin(self, attempt: Attempt, *, young: bool) -> None:
        request = attempt.request
        self._attempts[request.dispatch] = attempt
        self._dispatches.setdefault(request.job.key, set()).add(request.dispatch)
        if not young:
            self._occupy_thread((attempt, None))
        elif self._births.add(attempt):
            self._occupy_thread(self._births)

    def go_on(self) -> None:
        """Let lines that stopped at a failure go on: it was looked at."""
        with self._lock:
            for attempt in self._lines.go_on():
                self._begin(attempt, young=True)

    def recall(self, run_id: str) -> None:
        """Give back what of the run waits in line."""
        self._call_back(lambda attempt: attempt.request.job.run_id == run_id)

    def _call_back(self, chosen: Callable[[Attempt], bool]) -> None:
        with self._lock:
            waiting = self._lines.take(chosen)
        for attempt in waiting:
            self._report(attempt.never_began(*_CALLED_BACK))

    def _is_threaded(self) -> bool:
        """Tell whether there is a thread that could take over, and work is still taken."""
        return not self._closed and (bool(self._threads) or self._add_thread() is None)

    def _refusal(self) -> tuple[Reason | None, str] | None:
        """Say why work cannot be taken, if so."""
        if self._closed:
            return None, "cancelled before it began"
        why = None if self._threads else self._add_thread()
        return None if why is None else (Reason.DISPATCH_ERROR, f"no thread can be had: {why}")

    def _add_thread(self) -> str | None:
        """Add a thread, or say why there is none to be had."""
        try:
            wake = Wake()
        except OSError as error:
            return error.strerror
        thread = threading.Thread(target=self._work, args=(wake,), name=f"command-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            wake.close()
            return str(error)
        self._threads.append(thread)
        return None

    def take_over(self, attempt: Attempt, supervisor: Supervisor | None) -> None:
        """Go on with an attempt in a thread, from its start when nothing supervises it yet."""
        job = attempt.request.job
        if supervisor is not None:
            # it lasts, and what waits behind it for minutes should not be said to run
            self._call_back(lambda waiting: waiting.request.job is job)
        with self._lock:
            if supervisor is not None:
                self._lines.lasts(job)
            self._occupy_thread((attempt, supervisor))

    def _occupy_thread(self, work: tuple[Attempt, Supervisor | None] | Births) -> None:
        """Give work to a thread; without another one it waits for one of those that there are."""
        if self._threaded >= len(self._threads):
            self._add_thread()
        self._threaded += 1
        self._queue.put(work)

    def cancel(self, dispatches: list[str] | None, grace_s: float) -> None:
        """Ask attempts (None: all) to end: SIGTERM to their trees, SIGKILL after `grace_s`."""
        self._call_back(lambda attempt: dispatches is None or attempt.request.dispatch in dispatches)
        with self._lock:
            wanted = [*self._attempts.values()] if dispatches is None else map(self._attempts.get, dispatches)
            cancelled = [attempt for attempt in wanted if attempt is not None]
            for attempt in cancelled:
                attempt.cancel(grace_s)
        if self._nursery is not None:
            for attempt in cancelled:
                self._nursery.hand_over(attempt.request.dispatch)

    # the young ones

    def on_event(self, fd: int) -> bool:
        """Take in what is ready; tell whether the descriptor is one of ours."""
        return self._nursery is not None and self._nursery.on_event(fd)

    @property
    def next_tick(self) -> float:
        """When (monotonic) `tick` is due."""
        return NEVER if self._nursery is None else self._nursery.next_tick

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._nursery is not None:
            self._nursery.tick(now)

    def await_births(self, timeout_s: float) -> None:
        """Wait until every young attempt has its process; `nudge` tells of what takes longer."""
        self._births.wait(timeout_s)

    def ended(self, attempt: Attempt, outcome: Outcome, report: Callable[[Report], None] | None = None) -> None:
        """Forget the attempt and report how it ended, from any thread unless there is a `report`."""
        took_ms = outcome.ended_at - outcome.started_at
        with self._lock:
            self._attempts.pop(attempt.request.dispatch, None)
            successor = self._lines.ended(attempt.request.job, took_ms, good=outcome.status == "ok")
            if successor is not None:
                self._begin(successor, young=True)
        (report or self._report)(outcome)

    def end_strays(self, job_key: str) -> int:
        """End what left the groups of a job that is over, and forget the job; return how many processes there were."""
        self._launcher.forget(job_key)
        with self._lock:
            self._lines.forget(job_key)
            dispatches = self._dispatches.pop(job_key, None)
        return end_strays(self._marker, dispatches.__contains__) if dispatches else 0

    def close(self) -> None:
        """End everything that is left. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.cancel(None, 0.0)
        if self._nursery is not None:
            self._nursery.close()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(_JOIN_S)
        dispatches = set[str]().union(*self._dispatches.values())
        if dispatches:
            end_strays(self._marker, dispatches.__contains__)
        self._dispatches.clear()
        if self._owns_reaper:
            self._reaper.close()
        self._launcher.close()

    def _work(self, wake: Wake) -> None:
        """Carry out attempts until told to stop: one thread's life."""
        poller = select.poll()
        poller.register(wake.fd, select.POLLIN)
        try:
            while (work := self._queue.get()) is not None:
                if isinstance(work, Births):
                    self._midwife(wake, poller)
                else:
                    self._attend(*work, wake, poller)
                with self._lock:
                    self._threaded -= 1
        finally:
            wake.close()

    def _midwife(self, wake: Wake, poller: select.poll) -> None:
        """Start young attempts' processes as long as there are any."""
        nursery, pump = self._nursery, self._pump
        while nursery is not None and pump is not None and (attempt := self._births.take()) is not None:
            supervisor = nursery.begin(attempt)
            if self._births.done():
                pump.nudge()
            if supervisor is not None:
                self._attend(attempt, supervisor, wake, poller)

    def _attend(self, attempt: Attempt, supervisor: Supervisor | None, wake: Wake, poller: select.poll) -> None:
        """Carry out one attempt, or what is left of it."""
        attempt.wake = wake
        outcome = self._carry_out(attempt, supervisor, poller, wake.fd)
        self._launcher.release(attempt)
        with self._lock:
            attempt.wake = None
        self.ended(attempt, outcome)

    def _carry_out(self, attempt: Attempt, supervisor: Supervisor | None, poller: select.poll, wake_fd: int) -> Outcome:
        try:
            if supervisor is not None:
                return supervisor.run(poller, wake_fd, self._report)
            merge = attempt.request.job.merge
            if merge is not None:
                from interlock.dispatch.commands.merging import Merger  # noqa: PLC0415 - it brings the git room along

                merger = Merger(attempt, self._launcher.carry_out, poller, wake_fd)
                return merger.carry_out(merge, self._isolation, self._environ)
            return self._isolation.carry_out(attempt, lambda: self._launcher.carry_out(attempt, poller, wake_fd))
        except Exception as error:  # noqa: BLE001 - a fault of ours must end as an outcome, or the run would wait for ever
            return self.fault(attempt, error)

    def fault(self, attempt: Attempt, error: Exception) -> Outcome:
        """Return the outcome of an attempt that an error of ours has ended."""
        text = f"interlock failed to carry out the attempt: {type(error).__name__}: {error}"
        return attempt.never_began(Reason.DISPATCH_ERROR, text, answered=not attempt.has_process)
