"""What the outside world says of an attempt, as a journal can hold it.

Engines, their servers and functions are believed, but a text that is no UTF-8 and a count that no attempt can have must not
stop the driver: the next one would do, and pay for, the same again. Guarantee: what a journal can hold stays as it is.
"""

from __future__ import annotations

from typing import Final

import msgspec

from interlock.model.events import Answered, Usage
from interlock.model.outcome import Outcome

_MOST_TOKENS: Final = 10**12
"""Far beyond any attempt, and so many attempts can be added up."""
_MOST_USD: Final = 10**9
_MOST_MS: Final = 10**15


def holdable(ended: Outcome) -> Outcome:
    """Return the outcome with texts in UTF-8; a number that cannot be is unknown."""
    if not ended.error and ended.usage is None and ended.answered_by is None and not ended.notices:
        return ended
    return msgspec.structs.replace(
        ended,
        error=_text(ended.error),
        usage=None if ended.usage is None else _usage(ended.usage),
        answered_by=None if ended.answered_by is None else _answered(ended.answered_by),
        notices=tuple(map(_text, ended.notices)),
        retry_after_ms=_count(ended.retry_after_ms, _MOST_MS),
        quota_until=_count(ended.quota_until, _MOST_MS),
    )


def _text(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _count(value: object, most: int) -> int | None:
    return value if type(value) is int and 0 <= value <= most else None


def _usage(usage: Usage) -> Usage:
    cost: object = usage.cost_usd
    return Usage(
        input_tokens=_count(usage.input_tokens, _MOST_TOKENS),
        output_tokens=_count(usage.output_tokens, _MOST_TOKENS),
        cost_usd=float(cost) if isinstance(cost, int | float) and 0 <= cost <= _MOST_USD else None,
        cached_tokens=_count(usage.cached_tokens, _MOST_TOKENS),
        reasoning_tokens=_count(usage.reasoning_tokens, _MOST_TOKENS),
        estimated=usage.estimated,
    )


def _answered(said: Answered) -> Answered:
    session, model, request_id = (
        _text(text) if isinstance(text, str) else None for text in (said.session, said.model, said.request_id)
    )
    return Answered(session=session, model=model, request_id=request_id)
