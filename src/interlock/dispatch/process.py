"""Runs commands and scripts: one thread an attempt, taken from those that are idle.

Guarantees: `start` and `cancel` never block and never raise for one attempt; every started request gets exactly one
Outcome through `report`, from a thread of the runner; after `close` no process of this driver is left.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from interlock.dispatch.attempt import Attempt
from interlock.dispatch.base import Job, Outcome, Report, Request
from interlock.dispatch.clean_env import clean
from interlock.dispatch.launch import Launcher
from interlock.dispatch.leftovers import end_strays
from interlock.dispatch.log import RunLog
from interlock.dispatch.markers import Marker
from interlock.dispatch.reaper import Reaper
from interlock.dispatch.redact_base import ResolvedEnv
from interlock.model.states import Reason

_JOIN_S: Final = 10.0


class CommandRunner:
    """Where Command and Script targets run."""

    def __init__(
        self,
        report: Callable[[Report], None],
        env_for: Callable[[Job], ResolvedEnv],
        log: RunLog,
        scratch: Path,
        marker: Marker,
        *,
        environ: Mapping[str, str] | None = None,
        reaper: Reaper | None = None,
    ) -> None:
        base = clean(os.environ if environ is None else environ)
        self._report = report
        self._marker = marker
        self._reaper = reaper or Reaper(marker, base)
        self._launcher = Launcher(report, env_for, log, scratch, marker, base, self._reaper)
        self._queue: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._attempts: dict[str, Attempt] = {}
        self._dispatches: dict[str, set[str]] = {}
        """By job key: whose children may have strayed."""
        self._threads: list[threading.Thread] = []
        self._closed = False

    def start(self, request: Request) -> None:
        """Begin the attempt; its reports follow."""
        attempt = Attempt(request)
        with self._lock:
            self._attempts[request.dispatch] = attempt
            self._dispatches.setdefault(request.job.key, set()).add(request.dispatch)
            if len(self._attempts) > len(self._threads):
                thread = threading.Thread(target=self._work, name=f"command-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._queue.put(attempt)

    def cancel(self, dispatches: list[str] | None, grace_s: float) -> None:
        """Ask attempts (None: all) to end: SIGTERM to their trees, SIGKILL after `grace_s`."""
        with self._lock:
            wanted = list(self._attempts.values()) if dispatches is None else map(self._attempts.get, dispatches)
            for attempt in wanted:
                if attempt is not None:
                    attempt.cancel(grace_s)

    def end_strays(self, job_key: str) -> int:
        """End what left the groups of a job that is over, and forget the job; return how many processes there were."""
        self._launcher.forget(job_key)
        with self._lock:
            dispatches = self._dispatches.pop(job_key, None)
        return end_strays(self._marker, dispatches) if dispatches else 0

    def close(self) -> None:
        """End everything that is left. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.cancel(None, 0.0)
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(_JOIN_S)
        for key in list(self._dispatches):
            self.end_strays(key)
        self._reaper.close()
        self._launcher.close()

    def _work(self) -> None:
        """Carry out attempts until told to stop: one thread's life."""
        poller = select.poll()
        woken, waker = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(waker, False)
        poller.register(woken, select.POLLIN)

        def wake() -> None:
            with contextlib.suppress(OSError):
                os.write(waker, b"w")

        try:
            while (attempt := self._queue.get()) is not None:
                attempt.wake = wake
                outcome = self._carry_out(attempt, poller, woken)
                with self._lock:
                    attempt.wake = None
                    self._attempts.pop(attempt.request.dispatch, None)
                self._report(outcome)
        finally:
            os.close(woken)
            os.close(waker)

    def _carry_out(self, attempt: Attempt, poller: select.poll, woken: int) -> Outcome:
        try:
            return self._launcher.carry_out(attempt, poller, woken)
        except Exception as error:
            text = f"interlock failed to carry out the attempt: {type(error).__name__}: {error}"
            return attempt.never_began(Reason.DISPATCH_ERROR, text, answered=attempt.process is None)
