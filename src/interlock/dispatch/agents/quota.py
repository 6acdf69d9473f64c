"""When a provider takes work again, as its messages say it: epochs, durations, dates and times of day.

Guarantees: a time of day is the next one to come, in the zone that stands beside it, else in the local one; a text
that names no time gives None.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final
from zoneinfo import ZoneInfo

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER_UNIT: Final = r"\d+(?:\.\d+)?\s*(?:milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)\b"
_AFTER: Final = re.compile(
    rf"(?:in|after|delay\"?:?)\s+\"?((?:{_NUMBER_UNIT}(?:\s*,?\s*(?:and\s+)?)?)+|(?:\d+(?:\.\d+)?(?:ms|[dhms]))+)",
    re.IGNORECASE,
)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milli|[dhms])", re.IGNORECASE)
_EPOCH: Final = re.compile(r"\|\s*(\d{10})(\d{3})?\b")
_ISO: Final = re.compile(r"\b(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d))")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK: Final = re.compile(
    r"(?:resets?|again|until|available)(?:\s+(?:at|on))?\s+"
    r"(?:([A-Z][a-z]{2})[a-z]*\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s*(\d{4})?(?:\s+at|,)?\s+)?"
    r"(\d{1,2})(?::(\d\d))?\s*([ap]m)(?:\s*\(([A-Za-z_]+/[A-Za-z_/]+|UTC)\))?",
    re.IGNORECASE,
)


def delay_ms(text: str) -> int | None:
    """Return the wait that the text asks for: `try again in 1h 30m`, `retry after 2.5s`, `"retryDelay": "7s"`."""
    found = _AFTER.search(text)
    if found is None:
        return None
    parts = _PART.findall(found[1])
    return round(
        sum(float(number) * _UNITS["ms" if unit.lower() == "milli" else unit.lower()] for number, unit in parts)
    )


def until_ms(text: str, now_ms: int) -> int | None:
    """Return the epoch milliseconds at which the text says that work is taken again."""
    if found := _EPOCH.search(text):
        return int(found[1]) * 1_000
    if found := _ISO.search(text):
        return _epoch_ms(dt.datetime.fromisoformat(found[1]))
    if found := _CLOCK.search(text):
        return _clock(found, now_ms)
    wait = delay_ms(text)
    return None if wait is None else now_ms + wait


def _clock(found: re.Match[str], now_ms: int) -> int | None:
    month, day, year, hour, minute, half, zone = found.groups()
    try:
        now = dt.datetime.fromtimestamp(now_ms / 1_000, ZoneInfo(zone) if zone else None).astimezone()
        if zone:
            now = now.astimezone(ZoneInfo(zone))
        at = now.replace(hour=_hour(int(hour), half), minute=int(minute or 0), second=0, microsecond=0)
        if month is None:
            return _epoch_ms(at if at > now else at + dt.timedelta(days=1))
        at = at.replace(year=int(year or now.year), month=_MONTHS.index(month.lower()) + 1, day=int(day))
        return _epoch_ms(at.replace(year=at.year + 1) if at < now and year is None else at)
    except (ValueError, KeyError, OSError):
        return None


def _hour(hour: int, half: str) -> int:
    return hour % 12 + (12 if half.lower() == "pm" else 0)


def _epoch_ms(at: dt.datetime) -> int:
    return round(at.timestamp() * 1_000)
