"""What an ACP agent's errors, stops and token counts mean: agents agree on the frame, not on these."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from interlock.dispatch.agents.base import Answer
from interlock.dispatch.agents.disguised import disguised
from interlock.dispatch.agents.faults import fault_of
from interlock.dispatch.agents.jsonl import count_at, dig, text_at, total
from interlock.model.events import Usage
from interlock.model.states import Reason

_AUTH_REQUIRED: Final = -32000
_STATUSES: Final = range(400, 600)
_WITH_STATUS: Final = re.compile(r"\s*Error: [^\n]*\(HTTP ([45]\d\d)\)")
_NAMED: Final = re.compile(r"\b(4\d\d|5\d\d)\b")
_STOPS: Final = {
    "max_tokens": (Reason.LLM_BAD_RESPONSE, "the answer was cut at the model's output limit"),
    "max_turn_requests": (Reason.LLM_BAD_RESPONSE, "the agent used up its requests for one turn"),
    "refusal": (Reason.LLM_CONTENT_FILTER, "the agent refused to go on"),
    "cancelled": (Reason.LLM_BAD_RESPONSE, "the agent stopped as if it had been cancelled"),
}


def failure(known: Answer, error: Any, now_ms: int, *, acted: bool = True) -> Answer:  # noqa: ANN401 - any JSON value
    """Return the failure that a JSON-RPC error tells."""
    message = text_at(error, "message") or "the agent answered without a result"
    data = dig(error, "data")
    detail = text_at(data, "details") or text_at(data, "message") or (data if isinstance(data, str) else "")
    text = f"{message}: {detail}" if detail and detail not in message else message
    code = dig(error, "code")
    status = code if isinstance(code, int) and code in _STATUSES else None
    if code == _AUTH_REQUIRED:
        status = 401
    elif status is None and (found := _NAMED.search(text)):
        status = int(found[1])
    fault = fault_of(f"{text} {json.dumps(data)}" if data else text, now_ms, status)
    return msgspec.structs.replace(
        known,
        reason=fault.reason if fault else Reason.LLM_BAD_RESPONSE,
        error=text,
        acted=acted,
        retry_after_ms=fault.retry_after_ms if fault else None,
        quota_until=fault.quota_until if fault else None,
    )


def stop_failure(known: Answer, stop: str) -> Answer | None:
    """Return why a stop is not the end of a turn; None for one that is."""
    if stop == "end_turn":
        return None
    reason, error = _STOPS.get(stop, (Reason.LLM_BAD_RESPONSE, f"the agent stopped with `{stop or 'no reason'}`"))
    return msgspec.structs.replace(known, reason=reason, error=error)


def passed_off(known: Answer, chunks: list[str], now_ms: int) -> Answer | None:
    """Return the failure when the last thing that was said is an error; agents send one in one piece."""
    for text in ("".join(chunks), chunks[-1] if chunks else ""):
        found = _WITH_STATUS.match(text)
        fault = fault_of(text, now_ms, int(found[1])) if found else disguised(text, now_ms)
        if fault is not None:
            return msgspec.structs.replace(
                known,
                reason=fault.reason,
                error=f"an error was passed off as the answer: {text.strip()}",
                retry_after_ms=fault.retry_after_ms,
                quota_until=fault.quota_until,
            )
    return None


def usage_at(value: Any, before: Usage | None = None) -> Usage | None:  # noqa: ANN401 - any JSON value
    """Return what a result or an update says was consumed, added to `before`."""
    counts = dig(value, "usage") or dig(value, "_meta", "usage")
    if isinstance(counts, dict):
        cached = count_at(counts, "cachedReadTokens")
        found = Usage(
            input_tokens=total(count_at(counts, "inputTokens"), cached, count_at(counts, "cachedWriteTokens")),
            output_tokens=total(count_at(counts, "outputTokens"), count_at(counts, "thoughtTokens")),
            cached_tokens=cached,
            reasoning_tokens=count_at(counts, "thoughtTokens"),
        )
    elif isinstance(counts := dig(value, "_meta", "quota", "token_count"), dict):
        found = Usage(input_tokens=count_at(counts, "input_tokens"), output_tokens=count_at(counts, "output_tokens"))
    else:
        return None
    if before is None:
        return found
    return Usage(
        input_tokens=total(before.input_tokens, found.input_tokens),
        output_tokens=total(before.output_tokens, found.output_tokens),
        cached_tokens=total(before.cached_tokens, found.cached_tokens),
        reasoning_tokens=total(before.reasoning_tokens, found.reasoning_tokens),
    )
