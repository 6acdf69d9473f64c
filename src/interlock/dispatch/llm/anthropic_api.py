"""Anthropic's Messages API."""

from __future__ import annotations

from typing import Any, Final

from interlock.dispatch.llm import stainless
from interlock.dispatch.llm.base import Ask, BadReplyError, Finish, Reply, Trouble
from interlock.dispatch.llm.line import Line
from interlock.dispatch.llm.native_schema import closed
from interlock.model.events import Usage

OFFICIAL: Final = "https://api.anthropic.com"
DEFAULT_MAX_TOKENS: Final = 8_192
"""The API wants a bound; this one every current model takes."""
_FINISHES: Final[dict[str, Finish]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "context",
    "refusal": "filter",
    "tool_use": "tool",
}


class AnthropicApi:
    """One endpoint, over one line."""

    def __init__(self, base_url: str | None, key: str | None, line: Line) -> None:
        import anthropic  # noqa: PLC0415 - an extra, and slow to load

        self._sdk = anthropic
        # address and key are given, so that neither is taken from variables that the configuration does not name
        self._client = anthropic.Anthropic(
            base_url=base_url or OFFICIAL,
            api_key=key or "none",
            # the SDK sends a bearer token; compatible endpoints may know the key by its older header only
            default_headers={"X-Api-Key": key} if key and base_url else None,
            max_retries=0,
            http_client=line.http,
        )

    def complete(self, ask: Ask) -> Reply:
        """Send the prompt and read the answer."""
        body = _body(ask)
        if not ask.stream:
            return _reply(self._client.messages.create(**body, timeout=None))
        with self._client.messages.stream(**body, timeout=None) as stream:
            return _reply(stream.get_final_message(), request_id=stream.request_id)

    def enforceable(self, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Return the schema closed, as the API wants it."""
        return closed(schema)

    def explain(self, error: Exception) -> Trouble | None:
        """Say what an error of the SDK means."""
        return stainless.explain(self._sdk, error)


def _body(ask: Ask) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": ask.model,
        "messages": [{"role": "user", "content": ask.prompt}],
        "max_tokens": ask.max_tokens or DEFAULT_MAX_TOKENS,
    }
    extra = dict(ask.extra)
    if ask.temperature is not None:
        # the SDK names it no longer, since its newest models refuse it; the API and others' endpoints still know it
        extra.setdefault("temperature", ask.temperature)
    if ask.schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": ask.schema}}
        if isinstance(given := extra.pop("output_config", None), dict):
            body["output_config"] |= given
    if extra:
        body["extra_body"] = extra
    return body


def _reply(message: Any, request_id: str | None = None) -> Reply:  # noqa: ANN401 - compatible endpoints keep no type's promise
    content = getattr(message, "content", None)
    if not isinstance(content, list):
        raise BadReplyError("the answer holds no content")
    finish = message.stop_reason
    usage = _usage(message.usage)
    return Reply(
        text="".join(block.text for block in content if block.type == "text"),
        finish=_FINISHES.get(finish, "other") if finish else "cut",
        said=str(finish),
        model=message.model,
        request_id=request_id or getattr(message, "_request_id", None) or message.id,
        usage=usage,
        bound=DEFAULT_MAX_TOKENS,
        cache_write_tokens=getattr(message.usage, "cache_creation_input_tokens", None),
    )


def _usage(usage: Any) -> Usage | None:  # noqa: ANN401 - as above
    if usage is None:
        return None
    cached = getattr(usage, "cache_read_input_tokens", None)
    written = getattr(usage, "cache_creation_input_tokens", None)
    details = getattr(usage, "output_tokens_details", None)
    fresh = getattr(usage, "input_tokens", None)
    return Usage(
        input_tokens=None if fresh is None else fresh + (cached or 0) + (written or 0),
        output_tokens=getattr(usage, "output_tokens", None),
        cached_tokens=cached,
        reasoning_tokens=getattr(details, "thinking_tokens", None),
    )
