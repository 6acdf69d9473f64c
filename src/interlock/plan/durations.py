"""Durations as people write them: `500ms`, `90s`, `10m`, `2h`, `none`, or a bare number of milliseconds.

Guarantee: the result is an exact whole number of milliseconds from 1 to 2**53, or None for `none`.
"""

from __future__ import annotations

import re
from typing import Final

_FORM: Final = r"([0-9]{1,16})(ms|s|m|h)?"
_UNIT_MS: Final = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_LONGEST_MS: Final = 2**53
FORMS: Final = "write it as '500ms', '90s', '10m', '2h' or 'none'; a bare number is milliseconds"


class DurationError(ValueError):
    """The text is not a duration; the message says why."""


def parse_duration(text: str) -> int | None:
    """Return `text` in milliseconds, None for `none`. Raises DurationError."""
    if text == "none":
        return None
    found = re.fullmatch(_FORM, text)
    if not found:
        raise DurationError("is not a duration")
    duration_ms = int(found[1]) * _UNIT_MS[found[2]]
    if duration_ms == 0:
        raise DurationError("would end everything at once")
    if duration_ms > _LONGEST_MS:
        raise DurationError("is too long")
    return duration_ms
