"""From what a CLI says of a failed model call to a reason.

Guarantees: a status code decides where there is one, words where there is none; a used-up allowance is told from a
rate limit by its words, since both come as 429; the text is never lost.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from interlock.dispatch.agents.quota import delay_ms, until_ms
from interlock.model.states import Reason


class Fault(msgspec.Struct, frozen=True):
    """Why a call failed, and when it may be tried again."""

    reason: Reason
    retry_after_ms: int | None = None
    quota_until: int | None = None


_LONG_WAIT_MS: Final = 300_000
"""A limit that lasts longer than this is an allowance used up: waiting for it must not hold a place."""

_QUOTA: Final = re.compile(
    r"usage limit|insufficient[_ ]quota|exceeded your (?:current )?quota|quota (?:exceeded|exhausted|will reset)"
    r"|exhausted your (?:daily |monthly )?(?:quota|capacity)|(?:hour|daily|weekly|monthly|session|spend(?:ing)?|opus|sonnet) limit"
    r"|hit your limit|(?<!rate )limit reached|out of (?:extra usage|credits)|credit balance|free (?:tier|allocated) quota",
    re.IGNORECASE,
)
_CONTEXT: Final = (
    r"context[_ ](?:length|window)|maximum context|prompt is too long|too many (?:input )?tokens"
    r"|exceeds? (?:the )?(?:maximum|context|token)|input (?:token count|is too long)|request_too_large"
)
_FILTER: Final = r"content[_ ](?:filter|policy)|safety (?:filter|system|reasons)|\bblocked by\b|usage policy|prohibited"
_AUTH: Final = (
    r"invalid (?:api|x-api)[- ]?key|invalid authentication|unauthori[sz]ed|unauthenticated|authentication"
    r"|not logged in|please (?:run )?/?log ?in|api key|permission[_ ]denied|login required|\bauth method"
)
# its own database too: several of an agent that start at once wait for each other, and give up
_OVERLOADED: Final = (
    r"overloaded|high demand|temporarily unavailable|service unavailable|internal server error|database is locked"
)
_NETWORK: Final = (
    r"ECONN|ENOTFOUND|EAI_AGAIN|EPIPE|ETIMEDOUT|fetch failed|socket hang up|socket connection"
    r"|connection (?:error|refused|reset|closed)|stream (?:disconnected|closed|ended)|premature close|network"
    r"|error sending request|\bterminated\b|unable to connect|closed before|ended without|unexpected EOF|error reading a body"
)
_BY_WORDS: Final = tuple(
    (re.compile(words, re.IGNORECASE), reason)
    for words, reason in [
        (_CONTEXT, Reason.LLM_CONTEXT_LENGTH),
        (_FILTER, Reason.LLM_CONTENT_FILTER),
        (_AUTH, Reason.LLM_AUTH),
        (r"rate[-_ ]?limit|too many requests|resource[_ ]exhausted", Reason.LLM_RATE_LIMIT),
        (_OVERLOADED, Reason.LLM_OVERLOADED),
        (_NETWORK, Reason.NETWORK_ERROR),
    ]
)
_STATUSES: Final = {
    401: Reason.LLM_AUTH,
    402: Reason.LLM_QUOTA,
    403: Reason.LLM_AUTH,
    408: Reason.NETWORK_ERROR,
    413: Reason.LLM_CONTEXT_LENGTH,
    429: Reason.LLM_RATE_LIMIT,
}
_SERVER_ERROR: Final = 500
_REFUSED: Final = frozenset({Reason.LLM_CONTEXT_LENGTH, Reason.LLM_CONTENT_FILTER, Reason.LLM_AUTH})
"""What a 400 may mean besides a request that is wrong."""
_STATUS: Final = re.compile(
    r"(?:\bstatus(?:[ _]?code)?\"?:?\s*|API Error:?\s*|HTTP(?:/\d\.\d)?\s+|\bcode\"?:\s*|\bLast error:\s*|^\s*(?:Error:\s*)?)\[?([45]\d\d)\b",
    re.IGNORECASE,
)


def status_in(text: str) -> int | None:
    """Return the HTTP status that an error text names."""
    found = _STATUS.search(text)
    return int(found[1]) if found else None


def fault_of(text: str, now_ms: int, status: int | None = None) -> Fault | None:
    """Return what an error text says, by its status where one is known or named; None when it says nothing known."""
    status = status if status is not None else status_in(text)
    if _QUOTA.search(text) and status in {None, 400, 402, 403, 429}:
        return _quota(text, now_ms)
    reason = _by_status(status, text)
    if reason is None:
        reason = next((reason for words, reason in _BY_WORDS if words.search(text)), None)
    if reason is None:
        return None
    wait = delay_ms(text) if reason in {Reason.LLM_RATE_LIMIT, Reason.LLM_OVERLOADED} else None
    if reason is Reason.LLM_RATE_LIMIT and wait is not None and wait > _LONG_WAIT_MS:
        return Fault(Reason.LLM_QUOTA, quota_until=now_ms + wait)
    return Fault(reason, retry_after_ms=wait)


def _quota(text: str, now_ms: int) -> Fault:
    until = until_ms(text, now_ms)
    wait = delay_ms(text)
    if wait is not None and wait <= _LONG_WAIT_MS and until == now_ms + wait:
        # an allowance by the minute is a rate limit, whatever it is called
        return Fault(Reason.LLM_RATE_LIMIT, retry_after_ms=wait)
    return Fault(Reason.LLM_QUOTA, quota_until=until)


def _by_status(status: int | None, text: str) -> Reason | None:
    if status is None or status in _STATUSES:
        return None if status is None else _STATUSES[status]
    if status >= _SERVER_ERROR:
        return Reason.LLM_OVERLOADED
    said = next((reason for words, reason in _BY_WORDS if words.search(text)), None)
    return said if said in _REFUSED else Reason.LLM_BAD_RESPONSE
