"""A command runner on a folder of its own, and ways to wait for what real processes do."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from interlock.dispatch.base import EnvAudit, Job, Outcome, Report, Request, Started
from interlock.dispatch.commands.nursery import Pump
from interlock.dispatch.commands.runner import CommandRunner
from interlock.dispatch.env.redact_base import NullRedactor, ResolvedEnv
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.processes.markers import Marker
from interlock.dispatch.processes.reaper_main import marker_of, pids
from interlock.model.plan import Command, Target

PATIENCE_S = 30.0
_R = TypeVar("_R", Started, Outcome)
_numbers = itertools.count(1)


def until(condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """Poll until the condition gives something true, and return that."""
    give_up = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.005)
    return found


def runs(pid: int) -> bool:
    """Tell whether the pid is a running process, zombies not counted."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in {"Z", "X"}


def marked(run_id: str) -> list[int]:
    """Return the processes that carry a mark of the run."""
    return [pid for pid in pids() if marker_of(pid).startswith(f"{run_id}:".encode())]


class Shop:
    """One runner with all that it reported; `pumped`, the thread of the test watches the young attempts while it waits."""

    def __init__(self, folder: Path, *, environ: dict[str, str] | None = None, pumped: bool = False) -> None:
        self.folder = folder
        self.marker = Marker(f"run{os.getpid()}x{next(_numbers)}", f"holder{next(_numbers)}", 1)
        self.reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self.seen: list[Report] = []
        self.log = RunLog(folder / "run.log")
        self.env_for: Callable[[Job], ResolvedEnv] = lambda _: ResolvedEnv({}, NullRedactor())
        self.poller = select.epoll()
        self.runner = CommandRunner(
            self.reports.put,
            self._resolve,
            self.log,
            folder / "scratch",
            self.marker,
            environ=environ,
            pump=Pump(self.poller, self.reports.put, lambda: None) if pumped else None,
        )

    def _resolve(self, job: Job) -> ResolvedEnv:
        return self.env_for(job)

    def job(self, command: str | Target, **changes: Any) -> Job:
        target = Command(text=command) if isinstance(command, str) else command
        defaults: dict[str, Any] = {
            "key": f"job{next(_numbers)}",
            "run_id": self.marker.run_id,
            "step_id": "step",
            "step": 3,
            "target": target,
            "shell": ("bash", "-euo", "pipefail", "-c"),
            "cwd": str(self.folder),
        }
        return Job(**(defaults | changes))

    def request(self, job: Job, **changes: Any) -> Request:
        number = next(_numbers)
        defaults: dict[str, Any] = {
            "job": job,
            "dispatch": f"dispatch{number}",
            "unit_id": "step:solo",
            "attempt": 1,
            "idempotency_key": "the-key",
        }
        return Request(**(defaults | changes))

    def start(self, command: str | Target, **changes: Any) -> Request:
        request = self.request(self.job(command, **changes))
        self.runner.start(request)
        return request

    def run(self, command: str | Target, **changes: Any) -> Outcome:
        return self.outcome(self.start(command, **changes))

    def outcome(self, request: Request) -> Outcome:
        return self._wait(Outcome, request)

    def started(self, request: Request) -> Started:
        return self._wait(Started, request)

    def audits(self) -> list[EnvAudit]:
        return [r for r in self.seen if isinstance(r, EnvAudit)]

    def _wait(self, kind: type[_R], request: Request) -> _R:
        for report in self.seen:
            if isinstance(report, kind) and report.dispatch == request.dispatch:
                return report
        give_up = time.monotonic() + PATIENCE_S
        while True:
            report = self._next(give_up)
            self.seen.append(report)
            if isinstance(report, kind) and report.dispatch == request.dispatch:
                return report

    def _next(self, give_up: float) -> Report:
        while time.monotonic() < give_up:
            with contextlib.suppress(queue.Empty):
                return self.reports.get_nowait()
            self.pump(0.002)
        raise AssertionError("waited in vain")

    def pump(self, seconds: float) -> None:
        """Be the thread that polls, for a moment."""
        for fd, _ in self.poller.poll(seconds):
            self.runner.on_event(fd)
        self.runner.tick(time.monotonic())

    def close(self) -> None:
        self.runner.close()
        self.log.close()
        self.poller.close()
