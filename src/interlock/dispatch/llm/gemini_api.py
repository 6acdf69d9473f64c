"""Google's Gemini API."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from interlock.dispatch.llm.base import Ask, BadReplyError, Finish, Reply, Trouble
from interlock.dispatch.llm.line import Line, trust
from interlock.dispatch.llm.retry_after import wait_ms
from interlock.model.events import Usage

if TYPE_CHECKING:
    from google.genai.types import GenerateContentConfig

OFFICIAL: Final = "https://generativelanguage.googleapis.com"
_FINISHES: Final[dict[str, Finish]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "filter",
    "RECITATION": "filter",
    "LANGUAGE": "filter",
    "BLOCKLIST": "filter",
    "PROHIBITED_CONTENT": "filter",
    "SPII": "filter",
    "MODEL_ARMOR": "filter",
    "MALFORMED_FUNCTION_CALL": "tool",
    "UNEXPECTED_TOOL_CALL": "tool",
}


class GeminiApi:
    """One endpoint, over one line."""

    def __init__(self, base_url: str | None, key: str | None, line: Line) -> None:
        from google import genai  # noqa: PLC0415 - an extra, and slow to load
        from google.genai import errors, types  # noqa: PLC0415 - as above

        self._errors = errors
        self._types = types
        # address, key and kind are given, so that none is taken from variables that the configuration does not name
        self._client = genai.Client(
            vertexai=False,
            api_key=key or "none",
            http_options=types.HttpOptions(
                base_url=base_url or OFFICIAL,
                httpx_client=line.http,
                # for the SDK's other halves, which would read all certificates again for each thread
                httpx_async_client=_nobodys_client(),
                async_client_args={"ssl": trust()},
                retry_options=types.HttpRetryOptions(attempts=1),
            ),
        )

    def complete(self, ask: Ask) -> Reply:
        """Send the prompt and read the answer."""
        models, config = self._client.models, self._config(ask)
        if not ask.stream:
            return _reply([models.generate_content(model=ask.model, contents=ask.prompt, config=config)], stream=False)
        parts = list(models.generate_content_stream(model=ask.model, contents=ask.prompt, config=config))
        return _reply(parts, stream=True)

    def _config(self, ask: Ask) -> GenerateContentConfig:
        return self._types.GenerateContentConfig(**_settings(ask))

    def enforceable(self, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Return the schema: the API ignores what it does not know."""
        return schema

    def explain(self, error: Exception) -> Trouble | None:
        """Say what an error of the SDK means."""
        if not isinstance(error, self._errors.APIError):
            return None
        headers: Any = getattr(error.response, "headers", None) or {}
        details = _details(error.details)
        ids = [str(v.get("quotaId", "")) for d in details for v in d.get("violations") or [] if isinstance(v, dict)]
        delay = next((str(d["retryDelay"]) for d in details if "retryDelay" in d), "")
        return Trouble(
            message=error.message or str(error),
            status=_status(error.code),
            code=(error.status or "").lower(),
            headers={name.lower(): value for name, value in headers.items()},
            retry_after_ms=wait_ms(delay, 0) if delay else None,
            # one message serves for the minute's limit and the day's: only the quota's id tells them apart
            quota=any("PerDay" in found for found in ids) if ids else False if delay else None,
        )


@functools.cache
def _nobodys_client() -> Any:  # noqa: ANN401 - a class of an extra that may be absent
    """A client that is never opened."""
    import httpx2  # noqa: PLC0415 - comes with the extra, and is slow to load

    return httpx2.AsyncClient(verify=trust())


def _settings(ask: Ask) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if ask.temperature is not None:
        config["temperature"] = ask.temperature
    if ask.max_tokens is not None:
        config["max_output_tokens"] = ask.max_tokens
    if ask.schema is not None:
        config |= {"response_mime_type": "application/json", "response_json_schema": ask.schema}
    if ask.extra:
        config["http_options"] = {"extra_body": ask.extra}
    return config


def _status(code: object) -> int | None:
    return code if isinstance(code, int) else None


def _details(body: object) -> list[dict[str, Any]]:
    inner = body.get("error", body) if isinstance(body, dict) else {}
    details = inner.get("details") if isinstance(inner, dict) else None
    return [entry for entry in details if isinstance(entry, dict)] if isinstance(details, list) else []


def _reply(parts: list[Any], *, stream: bool) -> Reply:
    texts: list[str] = []
    finish, model, request_id, usage = "", None, None, None
    for part in parts:
        model, request_id = part.model_version or model, part.response_id or request_id
        usage = part.usage_metadata or usage
        blocked = part.prompt_feedback.block_reason if part.prompt_feedback else None
        if blocked is not None:
            return Reply(text="", finish="filter", said=_word(blocked), model=model, request_id=request_id)
        for candidate in (part.candidates or [])[:1]:
            inner = candidate.content.parts if candidate.content else None
            texts += [piece.text for piece in inner or [] if piece.text and not piece.thought]
            finish = _word(candidate.finish_reason) or finish
    if not finish and not texts and not stream:
        raise BadReplyError("the answer holds no candidates")
    return Reply(
        text="".join(texts),
        finish=_FINISHES.get(finish, "other") if finish else "cut" if stream else "stop",
        said=finish,
        model=model,
        request_id=request_id,
        usage=_usage(usage),
    )


def _word(value: Any) -> str:  # noqa: ANN401 - an enum of the SDK, or a string that it does not know
    return str(getattr(value, "value", value) or "")


def _usage(usage: Any) -> Usage | None:  # noqa: ANN401 - as above
    if usage is None:
        return None
    asked, answered = usage.prompt_token_count, usage.candidates_token_count
    thought = usage.thoughts_token_count
    return Usage(
        input_tokens=None if asked is None else asked + (usage.tool_use_prompt_token_count or 0),
        output_tokens=None if answered is None and thought is None else (answered or 0) + (thought or 0),
        cached_tokens=usage.cached_content_token_count,
        reasoning_tokens=thought,
    )
