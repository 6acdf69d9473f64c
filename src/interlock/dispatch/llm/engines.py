"""Answers prompts by LLM APIs: connections, deadlines, cancels, and what a schema becomes where it is not enforced.

Streaming is for steps with an `idle_timeout` alone: only then does it matter when the parts arrive. Without one the
answer is asked for whole, which every compatible endpoint can, which costs half the processor time, and whose
length tells a cut answer from a short one. Guarantee: `answer` never raises but for a fault of ours.
"""

from __future__ import annotations

import importlib
import json
from typing import Any, Final

import msgspec

from interlock.dispatch.attempt import Attempt, now_ms
from interlock.dispatch.base import EngineCall, EngineSettings, Request
from interlock.dispatch.env.redact_base import UNREDACTED_CHARS
from interlock.dispatch.llm.base import Api, Ask, BadReplyError, Failure, Reply, Trouble, TroubleError
from interlock.dispatch.llm.deadlines import Deadlines
from interlock.dispatch.llm.failures import failure_in, failure_of, refuses_schema
from interlock.dispatch.llm.line import Line
from interlock.dispatch.llm.prices import cost_usd, load_prices
from interlock.dispatch.llm.transport import nothing_came, of_transport
from interlock.dispatch.prompts.schema import with_schema
from interlock.model.durations import spelled_duration
from interlock.model.states import Reason

_APIS: Final = {
    "openai": "interlock.dispatch.llm.openai_api:OpenAiApi",
    "anthropic": "interlock.dispatch.llm.anthropic_api:AnthropicApi",
    "gemini": "interlock.dispatch.llm.gemini_api:GeminiApi",
}
"""Imported when first used: each brings its SDK along."""


class Ending(msgspec.Struct, frozen=True):
    """How a call ended: with a failure, a reply, or both (a reply that must not be used). Neither: cancelled."""

    failure: Failure | None = None
    reply: Reply | None = None
    cost_usd: float | None = None
    notices: tuple[str, ...] = ()


class Lines:
    """One thread's connections, one for each engine that it has asked."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str | None, str | None], tuple[Line, Api]] = {}

    def to(self, settings: EngineSettings, key: str | None) -> tuple[Line, Api]:
        """Return a line that can be used and the API at its end. Raises ImportError without the extra."""
        at = (settings.driver, settings.base_url, key)
        found = self._open.get(at)
        if found is not None and found[0].interrupted:
            found[0].close()
            found = None
        if found is None:
            module, _, name = _APIS[settings.driver].partition(":")
            load_prices()
            line = Line()
            found = self._open[at] = line, getattr(importlib.import_module(module), name)(settings.base_url, key, line)
        return found

    def close(self) -> None:
        """Close all. For the thread that uses them."""
        for line, _ in self._open.values():
            line.close()
        self._open.clear()


class LlmEngines:
    """The APIs that a run uses. Safe from any thread."""

    def __init__(self) -> None:
        self._deadlines = Deadlines()
        self._unenforced: set[tuple[str, str | None, str]] = set()
        """Engine, model and schema, where the endpoint has refused to enforce it."""

    def answer(self, attempt: Attempt, settings: EngineSettings, key: str | None, lines: Lines) -> Ending:
        """Ask, and wait for the end. `lines` are the calling thread's."""
        call = attempt.request.job.call
        if call is None or call.model is None:
            text = f"engine `{settings.name}` has no model; set `model` there or on the step"
            return _failed(Reason.DISPATCH_ERROR, text)
        try:
            line, api = lines.to(settings, key)
        except ImportError as error:
            text = f"engine `{settings.name}` needs `{error.name}`; install it with: pip install 'interlock[llm]'"
            return _failed(Reason.SPAWN_FAILED, text)
        ending = self._watched(attempt, settings, (line, api), call)
        if ending.reply is None:
            return ending
        return msgspec.structs.replace(
            ending, cost_usd=cost_usd(settings.driver, settings.base_url, call.model, ending.reply)
        )

    def _watched(self, attempt: Attempt, settings: EngineSettings, to: tuple[Line, Api], call: EngineCall) -> Ending:
        line, api = to
        job = attempt.request.job
        attempt.wake = line.interrupt
        if attempt.cancelled is not None:
            return Ending()
        line.expect(None if job.idle_timeout_ms is None else job.idle_timeout_ms / 1000)
        with self._deadlines.within(None if job.timeout_ms is None else job.timeout_ms / 1000, line.interrupt):
            ending = self._asked(api, attempt.request, settings, call)
        if ending.reply is not None or not line.interrupted:
            return ending
        if attempt.cancelled is not None:
            return Ending()
        return _failed(Reason.TIMEOUT, f"timed out after {spelled_duration(job.timeout_ms)}", answered=False)

    def _asked(self, api: Api, request: Request, settings: EngineSettings, call: EngineCall) -> Ending:
        schema = json.loads(call.schema_json) if call.schema_json else None
        at = (settings.name, call.model, call.schema_json or "")
        native = api.enforceable(schema) if isinstance(schema, dict) and at not in self._unenforced else None
        ending, trouble = _once(api, _ask(request, call, native), settings, request.job.idle_timeout_ms)
        if native is None or trouble is None or not refuses_schema(trouble):
            return ending
        self._unenforced.add(at)
        told = " ".join(trouble.message.split())[:UNREDACTED_CHARS]
        notice = f"engine `{settings.name}` does not enforce this schema, so the prompt carries it: {told}"
        ending, _ = _once(api, _ask(request, call, None), settings, request.job.idle_timeout_ms)
        return msgspec.structs.replace(ending, notices=(notice,))

    def close(self) -> None:
        """Release what is held; no call may be under way. Idempotent."""
        self._deadlines.close()


def _ask(request: Request, call: EngineCall, native: dict[str, Any] | None) -> Ask:
    prompt = request.prompt or ""
    if call.schema_json and native is None:
        prompt = with_schema(prompt, call.schema_json)
    return Ask(
        model=call.model or "",
        prompt=prompt,
        schema=native,
        temperature=call.temperature,
        max_tokens=call.max_tokens,
        extra=msgspec.json.decode(call.extra_params_json, type=dict[str, Any]),
        stream=request.job.idle_timeout_ms is not None,
    )


def _once(api: Api, ask: Ask, settings: EngineSettings, idle_ms: int | None) -> tuple[Ending, Trouble | None]:
    """Send one request; whatever comes of it is an ending, and the trouble behind it."""
    try:
        reply = api.complete(ask)
    except Exception as error:  # noqa: BLE001 - SDKs let anything through; each must end as an outcome
        if nothing_came(error):
            return _failed(Reason.IDLE_TIMEOUT, f"nothing came for {spelled_duration(idle_ms)}", answered=False), None
        return _broken(api, error, settings)
    failure = failure_in(reply, ask)
    return Ending(failure=None if failure is None else _placed(failure, settings), reply=reply), None


def _broken(api: Api, error: Exception, settings: EngineSettings) -> tuple[Ending, Trouble | None]:
    trouble = error.trouble if isinstance(error, TroubleError) else api.explain(error) or of_transport(error)
    if trouble is not None:
        return Ending(failure=_placed(failure_of(trouble, now_ms()), settings)), trouble
    text = str(error) if isinstance(error, BadReplyError) else f"no answer of its API: {type(error).__name__}: {error}"
    return Ending(
        failure=_placed(Failure(reason=Reason.LLM_BAD_RESPONSE, error=text[:UNREDACTED_CHARS]), settings)
    ), None


def _placed(failure: Failure, settings: EngineSettings) -> Failure:
    place = f" at {settings.base_url}" if settings.base_url else ""
    return msgspec.structs.replace(failure, error=f"engine `{settings.name}`{place}: {failure.error}")


def _failed(reason: Reason, error: str, *, answered: bool = True) -> Ending:
    return Ending(failure=Failure(reason=reason, error=error, answered=answered))
