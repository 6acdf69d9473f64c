"""HTTP errors in each API's own error body."""

from __future__ import annotations

from typing import Any

from tests.modelserver.calls import Call
from tests.modelserver.script import Step
from tests.modelserver.shapes import Headers, Json, fresh

ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
GEMINI = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
OPENAI = {400: "invalid_request_error", 401: "invalid_request_error", 429: "rate_limit_error"}
OPENAI_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


def error(step: Step, call: Call) -> tuple[int, Json, Headers]:
    """Return status, body and headers of the error that `step` asks for; its `error` overrides single fields."""
    status: int = step["status"]
    told: dict[str, Any] = {"message": step.get("text") or f"fake error {status}"}
    headers: Headers = [("retry-after", str(step["retry_after"]))] if "retry_after" in step else []
    headers += [(name, str(value)) for name, value in (step.get("headers") or {}).items()]
    request = fresh("req_")
    match call.api:
        case "anthropic":
            told = {"type": ANTHROPIC.get(status, "api_error"), **told, **step.get("error", {})}
            return status, {"type": "error", "request_id": request, "error": told}, [*headers, ("request-id", request)]
        case "gemini":
            told = {"code": status, "status": GEMINI.get(status, "UNKNOWN"), **told, **step.get("error", {})}
            return status, {"error": told}, headers
        case _:
            kind = {"param": None, "code": OPENAI_CODES.get(status), "type": OPENAI.get(status, "server_error")}
            return status, {"error": {**told, **kind, **step.get("error", {})}}, [*headers, ("x-request-id", request)]
