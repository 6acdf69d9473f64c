"""What the errors of the OpenAI and Anthropic SDKs mean: both are made by one generator and share their tree."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from interlock.dispatch.llm.base import Trouble
from interlock.dispatch.llm.transport import of_transport

_ERRORS_FROM = 400


def explain(sdk: ModuleType, error: Exception) -> Trouble | None:
    """Say what an error of that SDK means; None when it is none of it."""
    if isinstance(error, sdk.APIStatusError):
        told = error.status_code
        return Trouble(
            message=_message(error.body) or error.message,
            # an error in the middle of a stream comes with the status of its beginning
            status=told if told >= _ERRORS_FROM else None,
            code=_code(error.body),
            headers={name.lower(): value for name, value in error.response.headers.items()},
            request_id=error.request_id,
        )
    if isinstance(error, sdk.APIConnectionError):
        return of_transport(error) or Trouble(message=str(error))
    if isinstance(error, sdk.APIError):
        return Trouble(message=_message(error.body) or error.message, code=_code(error.body))
    return None


def _part(body: object) -> dict[str, Any]:
    """Return the part of the body that describes the error."""
    if not isinstance(body, dict):
        return {}
    inner = body.get("error")
    return inner if isinstance(inner, dict) else body


def _message(body: object) -> str:
    message = _part(body).get("message")
    if isinstance(message, str):
        return message
    return body if isinstance(body, str) else ""


def _code(body: object) -> str:
    part = _part(body)
    return " ".join(str(part[key]).lower() for key in ("code", "type") if part.get(key))
