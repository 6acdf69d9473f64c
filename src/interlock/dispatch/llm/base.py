"""What an LLM API is asked and what it gives: plain values, so that each API is one small file.

An API sends one prompt and reads one answer; it never retries, never validates and knows no run. Deadlines, cancels
and the fallback for schemas are the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from interlock.model.events import Usage
from interlock.model.states import Reason

Finish = Literal["stop", "length", "context", "filter", "tool", "cut", "other"]


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt. `schema` is set only where the API shall enforce it."""

    model: str
    prompt: str
    schema: dict[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    extra: dict[str, Any] = {}
    """Merged into the request's body."""
    stream: bool = False


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, whatever the API calls its parts. `said` is the API's own word for how it finished."""

    text: str
    finish: Finish
    said: str = ""
    refusal: str = ""
    bound: int | None = None
    """How many tokens of output were asked for, where the API sets a bound of its own."""
    model: str | None = None
    request_id: str | None = None
    usage: Usage | None = None
    cache_write_tokens: int | None = None


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """An error as the API told it. `status` is None when there was no HTTP answer."""

    message: str
    status: int | None = None
    code: str = ""
    """The API's own words for the kind of error, lower case, joined by blanks."""
    headers: Mapping[str, str] = {}
    request_id: str | None = None
    retry_after_ms: int | None = None
    """Told in the body."""
    quota: bool | None = None
    """Whether what is used up is a quota and no passing limit, where the API says which; None leaves it to the words."""
    sent: bool = True
    """The request may have reached the engine."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure in SPEC's words."""

    reason: Reason
    error: str
    retry_after_ms: int | None = None
    quota_until: int | None = None
    request_id: str | None = None
    answered: bool = True


class BadReplyError(Exception):
    """The endpoint answered with what is no answer of its API."""


class TroubleError(Exception):
    """An error that the endpoint told inside of an answer."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


class Api(Protocol):
    """One endpoint. Used by one thread."""

    def complete(self, ask: Ask) -> Reply:
        """Send the prompt and read the answer."""
        ...

    def enforceable(self, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Return the schema as the API can enforce it; None when the prompt must carry it."""
        ...

    def explain(self, error: Exception) -> Trouble | None:
        """Say what an error of the SDK means; None when it is none of the SDK's."""
        ...
