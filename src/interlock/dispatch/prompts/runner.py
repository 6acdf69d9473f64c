"""Runs prompts: one thread an attempt, taken from those that are idle.

What an attempt goes through: the engine's settings, environment and key, a place in the engine's limit, the engine.
Guarantees: `start` and `cancel` never block and never raise for one attempt; every started request gets exactly one
Outcome through `report`; waiting for a place counts against no timeout; after `close` no call, connection or process
that was begun here is left.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from interlock.dispatch.attempt import Attempt, now_ms
from interlock.dispatch.base import EngineSettings, EnvAudit, Job, Outcome, Report, Request
from interlock.dispatch.commands.runner import Wake
from interlock.dispatch.env.redact_base import EnvUnresolvedError, ResolvedEnv
from interlock.dispatch.isolated import Isolation
from interlock.dispatch.llm import Lines, LlmEngines
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.prompts.env import Keyed, with_key
from interlock.dispatch.prompts.limiter import EngineLimit, Limiter, Place, Waiting, limits_folder
from interlock.dispatch.prompts.outcome import outcome_of
from interlock.errors import InterlockError, WorkflowError
from interlock.model.states import Reason

_JOIN_S: Final = 10.0
_TOO_MUCH: Final = frozenset({Reason.LLM_RATE_LIMIT, Reason.LLM_OVERLOADED})


class Agents(Protocol):
    """What carries out the prompts of agents, each in the thread that calls."""

    def answer(
        self,
        attempt: Attempt,
        settings: EngineSettings,
        env: ResolvedEnv,
        api_key: str | None,
        poller: select.poll,
        wake_fd: int,
    ) -> Outcome:
        """Carry out one prompt; `poller` is the calling thread's, with `wake_fd` registered."""
        ...

    def close(self) -> None:
        """Release what is held. Idempotent."""
        ...


class PromptRunner:
    """Where jobs with a `call` run. `settings` raises InterlockError for an engine that is gone."""

    def __init__(
        self,
        report: Callable[[Report], None],
        env_for: Callable[[Job], ResolvedEnv],
        settings: Callable[[str], EngineSettings],
        log: RunLog,
        agents: Agents,
        *,
        environ: Mapping[str, str] | None = None,
        limits: Path | None = None,
        isolation: Isolation | None = None,
    ) -> None:
        self._report = report
        self._env_for = env_for
        self._settings = settings
        self._log = log
        self._agents = agents
        self._isolation = isolation
        self._llm = LlmEngines()
        self._environ = os.environ if environ is None else environ
        self._limiter = Limiter(limits or limits_folder(self._environ))
        self._queue: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._attempts: dict[str, Attempt] = {}
        self._threads: list[threading.Thread] = []
        self._audited: set[str] = set()
        self._closed = False

    @property
    def under_way(self) -> int:
        """How many attempts have begun and not ended."""
        return len(self._attempts)

    def start(self, request: Request) -> None:
        """Begin the attempt; its reports follow."""
        attempt = Attempt(request)
        with self._lock:
            refused = self._refusal() if len(self._attempts) >= len(self._threads) or self._closed else None
            if refused is None:
                self._attempts[request.dispatch] = attempt
                self._queue.put(attempt)
        if refused is not None:
            self._report(attempt.never_began(*refused))

    def _refusal(self) -> tuple[Reason | None, str] | None:
        """Add a thread; say why work cannot be taken if there is none at all."""
        if self._closed:
            return None, "cancelled before it began"
        thread = threading.Thread(target=self._work, name=f"prompt-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            return None if self._threads else (Reason.DISPATCH_ERROR, f"no thread can be had: {error}")
        self._threads.append(thread)
        return None

    def cancel(self, dispatches: list[str] | None, grace_s: float) -> None:
        """Ask attempts (None: all) to end: calls at once, agents by SIGTERM, and SIGKILL after `grace_s`."""
        with self._lock:
            wanted = list(self._attempts.values()) if dispatches is None else map(self._attempts.get, dispatches)
            for attempt in wanted:
                if attempt is not None:
                    attempt.cancel(grace_s)

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
        self._llm.close()
        self._agents.close()
        self._limiter.close()

    def _work(self) -> None:
        """Carry out attempts until told to stop: one thread's life."""
        with contextlib.closing(_Desk()) as desk:
            while (attempt := self._queue.get()) is not None:
                outcome = self._guarded(attempt, desk)
                with self._lock:
                    attempt.wake = None
                    self._attempts.pop(attempt.request.dispatch, None)
                self._report(outcome)

    def _guarded(self, attempt: Attempt, desk: _Desk) -> Outcome:
        try:
            return self._carry_out(attempt, desk)
        except EnvUnresolvedError as error:
            return attempt.never_began(error.reason, error.message)
        except InterlockError as error:
            return attempt.never_began(Reason.DISPATCH_ERROR, _told(error))
        except Exception as error:  # noqa: BLE001 - a fault of ours must end as an outcome, or the run would wait for ever
            text = f"interlock failed to carry out the prompt: {type(error).__name__}: {error}"
            return attempt.never_began(Reason.DISPATCH_ERROR, text, answered=attempt.started_at == 0)

    def _carry_out(self, attempt: Attempt, desk: _Desk) -> Outcome:
        job = attempt.request.job
        if job.call is None or attempt.cancelled is not None:
            return attempt.never_began(None, "cancelled before it began")
        settings = self._settings(job.call.engine)
        keyed = with_key(settings, self._env_for(job), self._environ)
        self._audit(job, keyed.env)
        limit = self._limiter.of(settings)
        place = _take(limit, attempt)
        if place is None:
            return attempt.never_began(None, "cancelled while it waited for its engine")
        reason: Reason | None = Reason.DISPATCH_ERROR
        try:
            outcome = self._answered(attempt, settings, keyed, desk)
            reason = outcome.reason
        finally:
            limit.give_back(place, overloaded=reason in _TOO_MUCH, answered=reason is None)
        if limit.notice:
            outcome = msgspec.structs.replace(outcome, notices=(*outcome.notices, limit.notice))
        return outcome

    def _answered(self, attempt: Attempt, settings: EngineSettings, keyed: Keyed, desk: _Desk) -> Outcome:
        attempt.started_at = now_ms()
        if settings.kind == "llm":
            ending = self._llm.answer(attempt, settings, keyed.key, desk.lines)
            return outcome_of(attempt, ending, keyed.env.redactor, self._log)
        poller, wake = desk.poller()
        attempt.wake = wake

        def answer() -> Outcome:
            return self._agents.answer(attempt, settings, keyed.env, keyed.key, poller, wake.fd)

        return answer() if self._isolation is None else self._isolation.carry_out(attempt, answer)

    def _audit(self, job: Job, env: ResolvedEnv) -> None:
        if not env.names and not env.warnings:
            return
        with self._lock:
            said = job.key in self._audited
            self._audited.add(job.key)
        if not said:
            self._report(EnvAudit(step=job.step, names=env.names, warnings=env.warnings))


class _Desk:
    """What a thread keeps from one attempt to the next: lines to APIs, and what it watches agents with."""

    def __init__(self) -> None:
        self.lines = Lines()
        self._has: tuple[select.poll, Wake] | None = None

    def poller(self) -> tuple[select.poll, Wake]:
        """Return a poller and what wakes it; had only once it is needed, for its open files. Raises OSError."""
        if self._has is None:
            poller, wake = select.poll(), Wake()
            poller.register(wake.fd, select.POLLIN)
            self._has = poller, wake
        return self._has

    def close(self) -> None:
        """Release connections and files."""
        self.lines.close()
        if self._has is not None:
            self._has[1].close()


def _told(error: InterlockError) -> str:
    """One line: what is wrong and what to do."""
    if isinstance(error, WorkflowError):
        return "; ".join(
            f"{found.message} ({found.hint})" if found.hint else found.message for found in error.diagnostics
        )
    return f"{error.message}; {error.hint}" if error.hint else error.message


def _take(limit: EngineLimit, attempt: Attempt) -> Place | None:
    waiting = Waiting(lambda: attempt.cancelled is not None)
    attempt.wake = waiting.wake
    with contextlib.ExitStack() as after:
        after.callback(setattr, attempt, "wake", None)
        return limit.take(waiting)
