"""Answers prompts by LLM APIs: the one connection pool of each engine, deadlines, and the way from reply to outcome.

Streaming is for steps with an `idle_timeout` alone: only then does it matter when the parts arrive. Without one the
answer is asked for whole, which every compatible endpoint can, which costs half the processor time, and whose
length tells a cut answer from a short one. Guarantee: every call that was begun ends in one Ending.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from interlock.dispatch.attempt import Attempt, now_ms
from interlock.dispatch.base import EngineCall, EngineSettings, Request
from interlock.dispatch.llm.base import Api, Ask, BadReplyError, Failure, Reply, Trouble, TroubleError
from interlock.dispatch.llm.failures import failure_in, failure_of, refuses_schema
from interlock.dispatch.llm.loop import Loop
from interlock.dispatch.llm.prices import cost_usd, load_prices
from interlock.dispatch.llm.transport import IN_FLIGHT, of_transport
from interlock.dispatch.schema_prompt import with_schema
from interlock.model.states import Reason

KEY_VARIABLES: Final = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}
"""Where each API's own key is looked for when the engine names none."""

_APIS: Final = {
    "openai": "interlock.dispatch.llm.openai_api:OpenAiApi",
    "anthropic": "interlock.dispatch.llm.anthropic_api:AnthropicApi",
    "gemini": "interlock.dispatch.llm.gemini_api:GeminiApi",
}
"""Imported when first used: each brings its SDK along."""


class Ending(NamedTuple):
    """How a call ended: with a failure, a reply, or both (a reply that must not be used). Neither: cancelled."""

    failure: Failure | None = None
    reply: Reply | None = None
    cost_usd: float | None = None
    notices: tuple[str, ...] = ()


class _Lane:
    """One client of an endpoint on an event loop of its own, and how many calls it has under way.

    Several loops rather than one: while one of them waits for the interpreter or the kernel the others go on, which
    on a busy machine is worth half of the rate at 64 calls.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self.loop = Loop()
        self.in_flight = 0


class LlmEngines:
    """The APIs that a run uses. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[tuple[str, str | None, str | None], list[_Lane]] = {}
        self._unenforced: set[tuple[str, str | None, str]] = set()
        """Engine, model and schema, where the endpoint has refused to enforce it."""

    def begin(
        self, attempt: Attempt, settings: EngineSettings, key: str | None, done: Callable[[Ending], None]
    ) -> None:
        """Ask; `done` is called once, from another thread or from this one, and must not raise."""
        call = attempt.request.job.call
        if call is None or call.model is None:
            text = f"engine `{settings.name}` has no model; set `model` there or on the step"
            done(_failed(Reason.DISPATCH_ERROR, text))
            return
        try:
            lane = self._lane(settings, key)
        except ImportError as error:
            text = f"engine `{settings.name}` needs `{error.name}`; install it with: pip install 'interlock[llm]'"
            done(_failed(Reason.SPAWN_FAILED, text))
            return

        async def work() -> None:
            ending = await self._carried(lane.api, attempt, settings, call)
            with self._lock:
                lane.in_flight -= 1
            if ending.reply is not None:
                cost = cost_usd(settings.driver, settings.base_url, call.model or "", ending.reply)
                ending = ending._replace(cost_usd=cost)
            done(ending)

        attempt.wake = lane.loop.begin(work)
        if attempt.cancelled is not None:
            attempt.wake()

    def _lane(self, settings: EngineSettings, key: str | None) -> _Lane:
        """Choose the client with the fewest calls under way; open another when all have enough."""
        with self._lock:
            lanes = self._lanes.setdefault((settings.driver, settings.base_url, key), [])
            lane = min(lanes, key=lambda one: one.in_flight, default=None)
            if lane is None or lane.in_flight >= IN_FLIGHT:
                lane = _Lane(_open(settings, key))
                lanes.append(lane)
            lane.in_flight += 1
            return lane

    async def _carried(self, api: Api, attempt: Attempt, settings: EngineSettings, call: EngineCall) -> Ending:
        if attempt.cancelled is not None:
            return Ending()
        job = attempt.request.job
        try:
            async with asyncio.timeout(None if job.timeout_ms is None else job.timeout_ms / 1000):
                return await self._asked(api, attempt.request, settings, call)
        except TimeoutError:
            return _failed(Reason.TIMEOUT, f"timed out after {job.timeout_ms} ms", answered=False)
        except asyncio.CancelledError:
            return Ending()

    async def _asked(self, api: Api, request: Request, settings: EngineSettings, call: EngineCall) -> Ending:
        schema = json.loads(call.schema_json) if call.schema_json else None
        at = (settings.name, call.model, call.schema_json or "")
        native = api.enforceable(schema) if isinstance(schema, dict) and at not in self._unenforced else None
        ask = _ask(request, call, native)
        ending, trouble = await _once(api, ask, settings, request.job.idle_timeout_ms)
        if native is None or trouble is None or not refuses_schema(trouble):
            return ending
        self._unenforced.add(at)
        told = " ".join(trouble.message.split())[:200]
        notice = f"engine `{settings.name}` does not enforce this schema, so the prompt carries it: {told}"
        ending, _ = await _once(api, _ask(request, call, None), settings, request.job.idle_timeout_ms)
        return ending._replace(notices=(notice,))

    def close(self) -> None:
        """End all calls, close all connections and loops. Idempotent."""
        for lane in [lane for lanes in self._lanes.values() for lane in lanes]:
            lane.loop.close(lane.api.close)


def _open(settings: EngineSettings, key: str | None) -> Api:
    module, _, name = _APIS[settings.driver].partition(":")
    load_prices()
    made: Api = getattr(importlib.import_module(module), name)(settings.base_url, key)
    return made


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


async def _once(
    api: Api, ask: Ask, settings: EngineSettings, idle_timeout_ms: int | None
) -> tuple[Ending, Trouble | None]:
    """Send one request; whatever comes of it is an ending, and the trouble behind it."""
    idle_s = None if idle_timeout_ms is None else idle_timeout_ms / 1000
    watch = asyncio.timeout(idle_s)
    try:
        async with watch:
            reply = await api.complete(ask, lambda: _progress(watch, idle_s))
    except TimeoutError as error:
        if watch.expired():
            return _failed(Reason.IDLE_TIMEOUT, f"nothing came for {idle_timeout_ms} ms", answered=False), None
        return _broken(api, error, settings)
    except Exception as error:  # noqa: BLE001 - SDKs let anything through; each must end as an outcome
        return _broken(api, error, settings)
    failure = failure_in(reply, ask)
    return Ending(failure=None if failure is None else _placed(failure, settings), reply=reply), None


def _progress(watch: asyncio.Timeout, idle_s: float | None) -> None:
    if idle_s is not None and not watch.expired():
        watch.reschedule(asyncio.get_running_loop().time() + idle_s)


def _broken(api: Api, error: Exception, settings: EngineSettings) -> tuple[Ending, Trouble | None]:
    trouble = error.trouble if isinstance(error, TroubleError) else api.explain(error) or of_transport(error)
    if trouble is not None:
        return Ending(failure=_placed(failure_of(trouble, now_ms()), settings)), trouble
    text = str(error) if isinstance(error, BadReplyError) else f"no answer of its API: {type(error).__name__}: {error}"
    return Ending(failure=_placed(Failure(reason=Reason.LLM_BAD_RESPONSE, error=text[:2_000]), settings)), None


def _placed(failure: Failure, settings: EngineSettings) -> Failure:
    place = f" at {settings.base_url}" if settings.base_url else ""
    return msgspec.structs.replace(failure, error=f"engine `{settings.name}`{place}: {failure.error}")


def _failed(reason: Reason, error: str, *, answered: bool = True) -> Ending:
    return Ending(failure=Failure(reason=reason, error=error, answered=answered))
