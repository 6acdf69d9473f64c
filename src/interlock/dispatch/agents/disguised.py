"""Recognises an error text that an agent passed off as its answer.

Only a reply that is nothing but an error is one: it opens with the words by which clients report a failed call, or
is the provider's error object. Guarantee: prose about errors, and JSON that merely holds an `error` field, are
answers.
"""

from __future__ import annotations

import re
from typing import Final

from interlock.dispatch.agents.faults import Fault, fault_of
from interlock.dispatch.agents.jsonl import dig, parse
from interlock.model.states import Reason

_MAX_CHARS: Final = 2_000
"""No client's error is longer; an answer may begin with a quoted one."""
_CLIENTS: Final = (
    r"\[?API Error\b",
    r"Error:\s*[45]\d\d\b",
    r"Error: (?:Request|Failed|Connection|fetch|read E|connect E|API)",
    r"[45]\d\d:?\s+(?:\{|status code|Bad |Unauth|Forbidden|Not Found|Too Many|Internal Server|Service Unavail|Gateway)",
    r"(?:litellm\.|openai\.|anthropic\.)?\w*(?:API|APIConnection|Authentication|RateLimit|BadRequest)Error\b",
    r"(?:litellm\.|openai\.|anthropic\.)?(?:InternalServer|ServiceUnavailable)Error\b",
)
_AGENTS: Final = (
    r"unexpected status [45]\d\d\b",
    r"exceeded retry limit\b",
    r"stream disconnected before completion",
    r"Claude (?:AI )?usage limit reached",
    r"You've hit your (?:usage |session |weekly )?limit",
    r"(?:5-hour|Weekly|Session) limit reached",
    r"Credit balance is too low",
    r"Invalid API key",
    r"Please run /login",
    r"Not logged in\b",
    r"(?:Prompt is too long|Execution error|Request timed out)\.?\s*$",
)
_OPENINGS: Final = re.compile(rf"\s*(?:{'|'.join(_CLIENTS + _AGENTS)})", re.IGNORECASE)
_ENVELOPE: Final = frozenset({"type", "error", "request_id", "requestId", "status", "code", "message", "statusCode"})
_MARKS: Final = frozenset({"type", "code", "status", "statusCode"})


def disguised(text: str, now_ms: int) -> Fault | None:
    """Return what the error is; None for an answer. One of no known kind is a `parse_error`."""
    if len(text) > _MAX_CHARS or not (_OPENINGS.match(text) or _is_error_object(text)):
        return None
    return fault_of(text, now_ms) or Fault(Reason.PARSE_ERROR)


def _is_error_object(text: str) -> bool:
    if not text.lstrip().startswith("{"):
        return False
    value = parse(text.encode("utf-8", "replace"))
    error = dig(value, "error")
    if not isinstance(error, dict) or not set(value) <= _ENVELOPE:
        return False
    return isinstance(error.get("message"), str) and bool(_MARKS & set(error))
