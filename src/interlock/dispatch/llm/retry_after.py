"""When an engine says that it will take work again: the many spellings of one moment.

Guarantee: what cannot be read is None, never an error; no wait is negative.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_PARTS: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_SPENT: Final = re.compile(r"0+(?:\.0+)?")
_EPOCH_S: Final = 1_000_000_000
"""A number beyond is a moment, below a wait."""


def retry_after_ms(headers: Mapping[str, str], now_ms: int) -> int | None:
    """Return how long to wait by an answer's headers (names in lower case)."""
    exact = _number(headers.get("retry-after-ms", ""))
    if exact is not None:
        return int(exact)
    told = wait_ms(headers.get("retry-after", ""), now_ms)
    return told if told is not None else _reset_ms(headers, now_ms)


def _reset_ms(headers: Mapping[str, str], now_ms: int) -> int | None:
    """Return the longest wait of a limit that has nothing remaining."""
    waits = []
    for name, value in headers.items():
        if "ratelimit" not in name or "reset" not in name:
            continue
        # x-ratelimit-reset-tokens, anthropic-ratelimit-tokens-reset: beside each stands what remains
        remaining = headers.get(name.replace("reset", "remaining"), "")
        if _SPENT.fullmatch(remaining) and (wait := wait_ms(value, now_ms)) is not None:
            waits.append(wait)
    return max(waits, default=None)


def wait_ms(text: str, now_ms: int) -> int | None:
    """Read seconds, an epoch, `6m0s`, an HTTP date or an RFC 3339 time as a wait from now."""
    text = text.strip()
    number = _number(text)
    if number is not None:
        return int(number * 1000) if number < _EPOCH_S else max(0, int(number * 1000) - now_ms)
    parts = _PARTS.findall(text)
    if parts and "".join(n + u for n, u in parts) == text:
        return int(sum(float(n) * _UNITS_MS[u] for n, u in parts))
    moment = _moment(text)
    return None if moment is None else max(0, int(moment.timestamp() * 1000) - now_ms)


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text) else None


def _moment(text: str) -> datetime | None:
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            found = read(text)
        except (ValueError, TypeError, IndexError):
            continue
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None
