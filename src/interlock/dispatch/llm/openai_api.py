"""OpenAI's Chat Completions and every endpoint that speaks them.

Chat Completions, not Responses: it is what compatible servers have in common.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

from interlock.dispatch.llm import stainless
from interlock.dispatch.llm.base import Ask, BadReplyError, Finish, Reply, Trouble, TroubleError
from interlock.dispatch.llm.line import Line
from interlock.dispatch.llm.native_schema import closed, requires_all
from interlock.model.events import Usage

OFFICIAL: Final = "https://api.openai.com/v1"
_FINISHES: Final[dict[str, Finish]] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "filter",
    "tool_calls": "tool",
    "function_call": "tool",
}


class OpenAiApi:
    """One endpoint, over one line."""

    def __init__(self, base_url: str | None, key: str | None, line: Line) -> None:
        import openai  # noqa: PLC0415 - an extra, and slow to load

        self._sdk = openai
        self._official = base_url is None
        # every value is given, so that none is taken from variables that the configuration does not name
        self._client = openai.OpenAI(
            base_url=base_url or OFFICIAL,
            api_key=key or "none",
            default_headers=None if self._official else _nobody(openai),
            max_retries=0,
            http_client=line.http,
        )

    def complete(self, ask: Ask) -> Reply:
        """Send the prompt and read the answer."""
        body = self._body(ask)
        if not ask.stream:
            return _whole(self._client.chat.completions.create(**body, timeout=None))
        body["stream_options"] = {"include_usage": True}
        with self._client.chat.completions.create(**body, stream=True, timeout=None) as stream:
            return _folded(stream)

    def _body(self, ask: Ask) -> dict[str, Any]:
        body: dict[str, Any] = {"model": ask.model, "messages": [{"role": "user", "content": ask.prompt}]}
        if ask.temperature is not None:
            body["temperature"] = ask.temperature
        if ask.max_tokens is not None:
            # the official endpoint refuses the old name for its newer models, others know no other
            body["max_completion_tokens" if self._official else "max_tokens"] = ask.max_tokens
        if ask.schema is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": _format(ask.schema)}
        if ask.extra:
            body["extra_body"] = ask.extra
        return body

    def enforceable(self, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Return the schema of an object; the API takes no other at the top."""
        return schema if schema.get("type") == "object" else None

    def explain(self, error: Exception) -> Trouble | None:
        """Say what an error of the SDK means."""
        return stainless.explain(self._sdk, error)


def _nobody(sdk: ModuleType) -> dict[str, Any]:
    """Headers of the account at OpenAI, which the SDK takes from variables: no business of another endpoint."""
    return {"OpenAI-Organization": sdk.Omit(), "OpenAI-Project": sdk.Omit()}


def _format(schema: dict[str, Any]) -> dict[str, Any]:
    strict = closed(schema)
    if strict is not None and requires_all(strict):
        return {"name": "answer", "schema": strict, "strict": True}
    return {"name": "answer", "schema": schema}


def _whole(answer: Any) -> Reply:  # noqa: ANN401 - compatible endpoints keep no type's promise
    error = getattr(answer, "error", None)
    if isinstance(error, dict):
        # some gateways answer 200 and tell the error in the body
        raise TroubleError(_told(error))
    choices = getattr(answer, "choices", None)
    if not isinstance(choices, list) or not choices:
        raise BadReplyError("the answer holds no choices")
    choice = choices[0]
    message = getattr(choice, "message", None)
    finish = getattr(choice, "finish_reason", None)
    return Reply(
        text=_text(getattr(message, "content", None)),
        refusal=_text(getattr(message, "refusal", None)),
        # a body that came whole is whole, even where the endpoint doesn't say how it finished
        finish=_FINISHES.get(finish, "other") if finish else "stop",
        said=str(finish),
        model=getattr(answer, "model", None),
        request_id=getattr(answer, "_request_id", None) or getattr(answer, "id", None),
        usage=_usage(getattr(answer, "usage", None)),
    )


def _folded(stream: Any) -> Reply:  # noqa: ANN401 - as above
    texts: list[str] = []
    refusals: list[str] = []
    finish, model, usage = None, None, None
    request_id = stream.response.headers.get("x-request-id")
    for chunk in stream:
        model = getattr(chunk, "model", None) or model
        request_id = request_id or getattr(chunk, "id", None)
        usage = getattr(chunk, "usage", None) or usage
        for choice in (getattr(chunk, "choices", None) or [])[:1]:
            texts.append(_text(choice.delta.content))
            refusals.append(_text(choice.delta.refusal))
            finish = choice.finish_reason or finish
    return Reply(
        text="".join(texts),
        refusal="".join(refusals),
        finish=_FINISHES.get(finish, "other") if finish else "cut",
        said=str(finish),
        model=model,
        request_id=request_id,
        usage=_usage(usage),
    )


def _told(error: dict[str, Any]) -> Trouble:
    code = error.get("code")
    return Trouble(
        message=str(error.get("message", "")),
        status=code if isinstance(code, int) else None,
        code=f"{code or ''} {error.get('type') or ''}".lower(),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _usage(usage: Any) -> Usage | None:  # noqa: ANN401 - as above
    if usage is None:
        return None
    put_in = getattr(usage, "prompt_tokens_details", None)
    put_out = getattr(usage, "completion_tokens_details", None)
    return Usage(
        input_tokens=getattr(usage, "prompt_tokens", None),
        output_tokens=getattr(usage, "completion_tokens", None),
        cached_tokens=getattr(put_in, "cached_tokens", None),
        reasoning_tokens=getattr(put_out, "reasoning_tokens", None),
    )
