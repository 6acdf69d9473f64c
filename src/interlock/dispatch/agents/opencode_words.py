"""What opencode's errors, finish reasons and token counts mean, wherever they come from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from interlock.dispatch.agents.base import Answer
from interlock.dispatch.agents.faults import fault_of
from interlock.dispatch.agents.jsonl import count_at, dig, text_at, total
from interlock.model.events import Usage
from interlock.model.states import Reason

_FINISHES: Final = {
    "length": (Reason.LLM_BAD_RESPONSE, "the answer was cut at the model's output limit"),
    "content-filter": (Reason.LLM_CONTENT_FILTER, "the model's content filter ended the answer"),
    "tool-calls": (Reason.LLM_BAD_RESPONSE, "it ended in the middle of its work, after a tool call"),
}


_REFUSALS: Final = ("rejected permission", "rule which prevents")


def is_refusal(error: str) -> bool:
    """Tell whether a tool's error says that it was not permitted."""
    return any(words in error for words in _REFUSALS)


def finish_answer(known: Answer, finish: str, text: str) -> Answer:
    """Return the answer, or why it is none."""
    if finish == "stop" or known.denied:
        return msgspec.structs.replace(known, text=text)
    reason, error = _FINISHES.get(
        finish, (Reason.LLM_BAD_RESPONSE, f"the answer is not whole: it ended with `{finish or 'no reason'}`")
    )
    return msgspec.structs.replace(known, reason=reason, error=error)


def error_answer(known: Answer, error: Any, now_ms: int) -> Answer:  # noqa: ANN401 - any JSON value
    """Return the failure that an error object tells."""
    message = (
        text_at(error, "data", "message") or text_at(error, "message") or text_at(error, "name") or "unknown error"
    )
    body = text_at(error, "data", "responseBody")
    fault = fault_of(f"{message} {body}", now_ms, count_at(error, "data", "statusCode"))
    if fault is None and text_at(error, "name") == "ProviderAuthError":
        fault = fault_of(message, now_ms, 401)
    named = _NAMED.get(text_at(error, "name"))
    return msgspec.structs.replace(
        known,
        reason=named or (fault.reason if fault else Reason.LLM_BAD_RESPONSE),
        error=message,
        retry_after_ms=_retry_after_ms(error) or (fault.retry_after_ms if fault else None),
        quota_until=fault.quota_until if fault else None,
    )


_NAMED: Final = {"MessageOutputLengthError": Reason.LLM_BAD_RESPONSE, "ContextOverflowError": Reason.LLM_CONTEXT_LENGTH}


def retry_answer(known: Answer, status: Any, now_ms: int) -> Answer:  # noqa: ANN401 - any JSON value
    """Return the failure that a session's status `retry` tells, with the time that opencode would wait."""
    message = text_at(status, "message") or "the call failed"
    found = _STATUS.search(message)
    fault = fault_of(message, now_ms, int(found[1]) if found else None)
    again_at = dig(status, "next")
    wait_ms = max(0, int(again_at) - now_ms) if isinstance(again_at, int | float) else None
    return msgspec.structs.replace(
        known,
        # nothing but what may pass is repeated
        reason=fault.reason if fault else Reason.LLM_OVERLOADED,
        error=message,
        retry_after_ms=(fault.retry_after_ms if fault else None) or wait_ms,
        quota_until=fault.quota_until if fault else None,
    )


_STATUS: Final = re.compile(r"\b(429|5\d\d)\b")


def _retry_after_ms(error: Any) -> int | None:  # noqa: ANN401 - any JSON value
    headers = dig(error, "data", "responseHeaders")
    if not isinstance(headers, dict):
        return None
    for name, unit_ms in (("retry-after-ms", 1), ("retry-after", 1_000)):
        text = str(headers.get(name, ""))
        if text.isdecimal():
            return int(text) * unit_ms
    return None


def usage_of(steps: Sequence[Any]) -> Usage | None:
    """Return the sum over steps or messages, each with `tokens` and `cost`."""
    if not steps:
        return None
    costs = [cost for step in steps if isinstance(cost := dig(step, "cost"), int | float)]
    return Usage(
        input_tokens=_sum(steps, ("input",), ("cache", "read"), ("cache", "write")),
        output_tokens=_sum(steps, ("output",), ("reasoning",)),
        cached_tokens=_sum(steps, ("cache", "read")),
        reasoning_tokens=_sum(steps, ("reasoning",)),
        # an endpoint of one's own has no price there, and says 0
        cost_usd=sum(costs) or None,
    )


def _sum(steps: Sequence[Any], *paths: tuple[str, ...]) -> int | None:
    return total(*(count_at(step, "tokens", *path) for step in steps for path in paths))


def text_of(reply: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return what a message says."""
    parts = dig(reply, "parts")
    texts = (
        [text_at(part, "text") for part in parts if text_at(part, "type") == "text"] if isinstance(parts, list) else []
    )
    return "".join(texts)


def used_tools(reply: Any) -> list[Any]:  # noqa: ANN401 - any JSON value
    """Return the tool calls of a message."""
    parts = dig(reply, "parts")
    return [part for part in parts if text_at(part, "type") == "tool"] if isinstance(parts, list) else []


def refused_tools(reply: Any) -> list[str]:  # noqa: ANN401 - any JSON value
    """Return the tools that a message asked for and was refused."""
    return [text_at(part, "tool") for part in used_tools(reply) if is_refusal(text_at(part, "state", "error"))]
