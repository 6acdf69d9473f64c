"""An agent runner on a folder of its own: prompts in, outcomes out, each prompt in a thread as in a driver."""

from __future__ import annotations

import itertools
import os
import queue
import select
import threading
from pathlib import Path
from typing import Any

from interlock.dispatch.agents.runner import AgentRunner
from interlock.dispatch.attempt import Attempt
from interlock.dispatch.base import EngineCall, EngineSettings, Job, Outcome, Report, Request
from interlock.dispatch.env.clean import clean
from interlock.dispatch.env.redact_base import NullRedactor, Redactor, ResolvedEnv
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.processes.markers import Marker
from interlock.dispatch.processes.reaper import Reaper
from interlock.model.plan import Prompt

PATIENCE_S = 60.0
_numbers = itertools.count(1)


class Asked:
    """A prompt under way."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()

    def outcome(self) -> Outcome:
        return self.outcomes.get(timeout=PATIENCE_S)


class Desk:
    """One runner; `close` ends it as a driver would."""

    def __init__(
        self, folder: Path, environ: dict[str, str] | None = None, run_id: str | None = None, log: Path | None = None
    ) -> None:
        self.folder = folder
        self.cwd = folder / "project"
        self.cwd.mkdir(exist_ok=True)
        self.marker = Marker(run_id or f"run{os.getpid()}x{next(_numbers)}", f"holder{next(_numbers)}", 1)
        self.reports: list[Report] = []
        self.redactor: Redactor = NullRedactor()
        base = clean({"PATH": os.environ["PATH"], "HOME": str(folder)} | (environ or {}))
        self.reaper = Reaper(self.marker, base)
        self.log = RunLog(log or folder / f"{self.marker.holder}.log")
        self.runner = AgentRunner(self.reports.append, self.log, folder / "scratch", self.marker, base, self.reaper)
        self._threads: list[threading.Thread] = []

    def ask(self, engine: EngineSettings, prompt: str, **changes: Any) -> Asked:
        number = next(_numbers)
        call = EngineCall(engine=engine.name, kind="agent", driver=engine.driver, model=changes.pop("model", None))
        job = Job(
            key=f"job{number}",
            run_id=self.marker.run_id,
            step_id="step",
            step=0,
            target=Prompt(text=prompt, engine=engine.name),
            cwd=str(self.cwd),
            timeout_ms=changes.pop("timeout_ms", 60_000),
            idle_timeout_ms=changes.pop("idle_timeout_ms", None),
            call=call,
        )
        request = Request(
            job=job,
            dispatch=f"dispatch{number}",
            unit_id="step:solo",
            attempt=1,
            idempotency_key=changes.pop("key", f"key{number}"),
            prompt=prompt,
            **changes,
        )
        asked = Asked(Attempt(request))
        thread = threading.Thread(target=self._carry_out, args=(asked, engine))
        self._threads.append(thread)
        thread.start()
        return asked

    def _carry_out(self, asked: Asked, engine: EngineSettings) -> None:
        reading, writing = os.pipe()
        asked.attempt.wake = lambda: void(os.write(writing, b"w"))
        poller = select.poll()
        poller.register(reading, select.POLLIN)
        env = ResolvedEnv({}, self.redactor)
        api_key = "dummy-key" if engine.api_key else None
        outcome = self.runner.answer(asked.attempt, engine, env, api_key, poller, reading)
        asked.attempt.wake = None
        os.close(reading)
        os.close(writing)
        asked.outcomes.put(outcome)

    def close(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self.runner.close()
        self.reaper.close()
        self.log.close()


def void(_: object) -> None:
    """Take a value that nobody needs."""
