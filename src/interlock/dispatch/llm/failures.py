"""From an API's errors and odd endings to the reasons of the run's vocabulary.

What the words say counts before what the status says: the same status serves for "wait a second" and "your money
is spent". 5xx are `llm_overloaded`: a model call has no effect but its price, so it may be sent again. A limit that
lifts only after more than five minutes is a quota, since waiting for it in the queue would hold up the run.
"""

from __future__ import annotations

import re
from typing import Final

from interlock.dispatch.env.redact_base import UNREDACTED_CHARS
from interlock.dispatch.llm.base import Ask, Failure, Finish, Reply, Trouble
from interlock.dispatch.llm.retry_after import retry_after_ms
from interlock.model.states import Reason

_LONG_MS: Final = 300_000

_QUOTA: Final = re.compile(
    r"insufficient.?quota|exceeded your current quota|credit balance is too low|billing.?hard.?limit|out of credits"
    r"|insufficient.?(?:credits|balance|funds)|usage.?limit|spend(?:ing)? limit|per.?day|daily limit|monthly limit",
    re.IGNORECASE,
)
_CONTEXT: Final = re.compile(
    r"context.?length|context.?window|maximum context|prompt is too long|input is too long|too many (?:input )?tokens"
    r"|input token count|exceeds? the (?:maximum|max|limit).{0,40}tokens|exceed_context_size|maximum (?:input|prompt) length",
    re.IGNORECASE,
)
_FILTER: Final = re.compile(
    r"content.?filter|content.?policy|responsible.?ai|safety system|prohibited.?content|flagged", re.IGNORECASE
)
_KEY: Final = re.compile(
    r"api.?key.{0,30}(?:invalid|not valid|missing|expired)|(?:invalid|incorrect|missing|expired).{0,10}api.?key"
    r"|authentication.?error|unauthenticated|permission.?(?:error|denied)",
    re.IGNORECASE,
)
_BUSY: Final = re.compile(
    r"overloaded|unavailable|server.?(?:is )?busy|at capacity|api_error|internal.?(?:server.?)?error|server_error",
    re.IGNORECASE,
)
_RATE: Final = re.compile(r"rate.?limit|too many requests|resource.?exhausted", re.IGNORECASE)
_SCHEMA: Final = re.compile(
    r"response.?format|json.?schema|output.?config|output.?format|response.?json.?schema|structured|schema|grammar",
    re.IGNORECASE,
)

_WORDS: Final = (
    (_QUOTA, Reason.LLM_QUOTA),
    (_CONTEXT, Reason.LLM_CONTEXT_LENGTH),
    (_FILTER, Reason.LLM_CONTENT_FILTER),
    (_KEY, Reason.LLM_AUTH),
)
_BUSY_WORDS: Final = ((_BUSY, Reason.LLM_OVERLOADED), (_RATE, Reason.LLM_RATE_LIMIT))
"""Of errors without a status; with one, the status says it."""
_ENDINGS: Final[dict[Finish, tuple[Reason, str]]] = {
    "length": (
        Reason.LLM_BAD_RESPONSE,
        "the answer was cut off at {bound}; raise `max_tokens` or ask for less",
    ),
    "context": (Reason.LLM_CONTEXT_LENGTH, "prompt and answer together are longer than the model's context"),
    "filter": (Reason.LLM_CONTENT_FILTER, "the answer was withheld: {said}"),
    "tool": (Reason.LLM_BAD_RESPONSE, "the model asked for a tool instead of answering; none was offered"),
    "cut": (Reason.NETWORK_ERROR, "the answer broke off before its end"),
    "other": (Reason.LLM_BAD_RESPONSE, "the answer ended with `{said}`"),
}
_PAYMENT: Final = 402
_MAY_BE_QUOTA: Final = frozenset({400, 403, 429})
_REFUSED: Final = frozenset({400, 404, 405, 415, 422, 501})
_BUSY_FROM: Final = 500
_GATEWAY: Final = frozenset({502, 504, 524})
"""Said by who stands between: what stands behind may have taken the request up."""


def failure_of(trouble: Trouble, now_ms: int) -> Failure:
    """Say what an API's error means for the unit."""
    wait = trouble.retry_after_ms
    if wait is None:
        wait = retry_after_ms(trouble.headers, now_ms)
    reason = _reason(trouble, wait)
    quota = reason is Reason.LLM_QUOTA
    waits = reason in (Reason.LLM_RATE_LIMIT, Reason.LLM_OVERLOADED)
    return Failure(
        reason=reason,
        error=_told(trouble),
        retry_after_ms=wait if waits else None,
        quota_until=now_ms + wait if quota and wait is not None else None,
        request_id=trouble.request_id,
        answered=not trouble.sent if trouble.status is None else trouble.status not in _GATEWAY,
    )


def _told(trouble: Trouble) -> str:
    text = " ".join(trouble.message.split())[:UNREDACTED_CHARS]
    return text if trouble.status is None else f"HTTP {trouble.status}: {text}" if text else f"HTTP {trouble.status}"


def _reason(trouble: Trouble, wait: int | None) -> Reason:  # noqa: PLR0911 - a table, read from the top
    status, words = trouble.status, f"{trouble.code} {trouble.message}"
    if status is None:
        return _by_words(words, _WORDS + _BUSY_WORDS) or Reason.NETWORK_ERROR
    if _is_quota(trouble, words):
        return Reason.LLM_QUOTA
    if status == 429:  # noqa: PLR2004 - too many requests
        return Reason.LLM_QUOTA if wait is not None and wait > _LONG_MS else Reason.LLM_RATE_LIMIT
    if status in (401, 403):
        return Reason.LLM_AUTH
    if status == 413:  # noqa: PLR2004 - content too large
        return Reason.PROMPT_TOO_LARGE
    if status in (408, 409, 425) or status >= _BUSY_FROM:
        return Reason.LLM_OVERLOADED
    return _by_words(words, _WORDS) or Reason.LLM_BAD_RESPONSE


def _is_quota(trouble: Trouble, words: str) -> bool:
    if trouble.quota is not None:
        return trouble.quota
    return trouble.status == _PAYMENT or (trouble.status in _MAY_BE_QUOTA and bool(_QUOTA.search(words)))


def _by_words(words: str, patterns: tuple[tuple[re.Pattern[str], Reason], ...]) -> Reason | None:
    return next((reason for pattern, reason in patterns if pattern.search(words)), None)


def refuses_schema(trouble: Trouble) -> bool:
    """Tell whether the endpoint will not enforce this schema, so that the prompt must carry it."""
    words = f"{trouble.code} {trouble.message}"
    return trouble.status in _REFUSED and bool(_SCHEMA.search(words)) and not _CONTEXT.search(words)


def failure_in(reply: Reply, ask: Ask) -> Failure | None:
    """Say what is wrong with an answer that came whole; None when nothing is."""
    wrong = _wrong(reply, ask)
    if wrong is None:
        return None
    reason, error = wrong
    return Failure(
        reason=reason, error=error[:UNREDACTED_CHARS], request_id=reply.request_id, answered=reply.finish != "cut"
    )


def _wrong(reply: Reply, ask: Ask) -> tuple[Reason, str] | None:
    if reply.refusal:
        return Reason.LLM_CONTENT_FILTER, f"the model refused: {reply.refusal}"
    if reply.finish == "stop":
        return None
    reason, error = _ENDINGS[reply.finish]
    most = ask.max_tokens or reply.bound
    bound = f"max_tokens ({most})" if most else "the engine's own bound on output"
    return reason, error.format(said=reply.said, bound=bound)
