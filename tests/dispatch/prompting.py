"""A prompt runner on a folder of its own, with engines that lead to the scripted server."""

from __future__ import annotations

import itertools
import queue
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from interlock.dispatch.attempt import Attempt
from interlock.dispatch.base import EngineCall, EngineSettings, EnvAudit, Job, Outcome, Report, Request
from interlock.dispatch.env.redact_base import NullRedactor, ResolvedEnv
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.prompts.runner import PromptRunner
from interlock.model.plan import Prompt
from interlock.model.states import Reason

PATIENCE_S = 30.0
KEY = "key-of-the-engine-4711"
_numbers = itertools.count(1)


class FakeAgents:
    """An agent that answers what it was told, or waits until it is cancelled."""

    def __init__(self) -> None:
        self.asked: list[tuple[EngineSettings, ResolvedEnv, str | None]] = []
        self.waits = False
        self.breaks = False
        self.reason: Reason | None = None
        self.closed = 0

    def answer(
        self,
        attempt: Attempt,
        settings: EngineSettings,
        env: ResolvedEnv,
        api_key: str | None,
        poller: select.poll,
        wake_fd: int,
    ) -> Outcome:
        self.asked.append((settings, env, api_key))
        if self.breaks:
            raise RuntimeError("the adapter is broken")
        while self.waits and attempt.cancelled is None:
            assert poller.poll(PATIENCE_S * 1000) == [(wake_fd, select.POLLIN)]
        if attempt.cancelled is not None:
            return attempt.never_began(None, "cancelled")
        status: Literal["ok", "failed"] = "ok" if self.reason is None else "failed"
        return Outcome(dispatch=attempt.request.dispatch, status=status, reason=self.reason, output=b"done")

    def close(self) -> None:
        self.closed += 1


class Prompts:
    """One runner with all that it reported."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self.seen: list[Report] = []
        self.log_path = folder / "run.log"
        self.log = RunLog(self.log_path)
        self.agents = FakeAgents()
        self.environ = {"THE_KEY": KEY, "XDG_STATE_HOME": str(folder / "state")}
        self.env_for: Callable[[Job], ResolvedEnv] = lambda _: ResolvedEnv({}, NullRedactor())
        self.engines = {
            driver: EngineSettings(
                name=driver,
                kind="llm",
                driver=driver,
                base_url=url + ("/v1" if driver == "openai" else ""),
                api_key="THE_KEY",
            )
            for driver in ("openai", "anthropic", "gemini")
        }
        self.engines["coder"] = EngineSettings(name="coder", kind="agent", driver="claude", api_key="THE_KEY")
        self.settings: Callable[[str], EngineSettings] = self.engines.__getitem__
        self.runner = PromptRunner(
            self.reports.put,
            lambda job: self.env_for(job),  # noqa: PLW0108 - a test may replace it
            lambda name: self.settings(name),  # noqa: PLW0108 - as above
            self.log,
            self.agents,
            environ=self.environ,
        )

    def request(self, engine: str = "openai", prompt: str = "hello", **changes: Any) -> Request:
        number = next(_numbers)
        found = self.engines.get(engine)
        asked = {"model", "schema_json", "temperature", "max_tokens", "extra_params_json"}
        call = EngineCall(
            engine=engine,
            kind=found.kind if found else "llm",
            driver=found.driver if found else "openai",
            **({"model": "fake-model"} | {key: changes.pop(key) for key in asked & set(changes)}),
        )
        job: dict[str, Any] = {
            "key": f"job{number}",
            "run_id": "run",
            "step_id": "step",
            "step": 3,
            "cwd": str(self.folder),
        }
        return Request(
            job=Job(target=Prompt(text=prompt, engine=engine), call=call, **(job | changes)),
            dispatch=f"dispatch{number}",
            unit_id="step:solo",
            attempt=1,
            idempotency_key="the-key",
            prompt=prompt,
        )

    def start(self, engine: str = "openai", prompt: str = "hello", **changes: Any) -> Request:
        request = self.request(engine, prompt, **changes)
        self.runner.start(request)
        return request

    def ask(self, engine: str = "openai", prompt: str = "hello", **changes: Any) -> Outcome:
        return self.outcome(self.start(engine, prompt, **changes))

    def outcome(self, request: Request, patience_s: float = PATIENCE_S) -> Outcome:
        give_up = time.monotonic() + patience_s
        while True:
            for report in self.seen:
                if isinstance(report, Outcome) and report.dispatch == request.dispatch:
                    return report
            self.seen.append(self.reports.get(timeout=max(0.001, give_up - time.monotonic())))

    def audits(self) -> list[EnvAudit]:
        return [report for report in self.seen if isinstance(report, EnvAudit)]

    def close(self) -> None:
        self.runner.close()
        self.log.close()
