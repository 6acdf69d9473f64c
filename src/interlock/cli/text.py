"""Text made fit for a terminal: no control character of a workflow, a log or an item reaches it raw.

Escaping happens on display only; what is stored and what `--json` gives stays as it is.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import msgspec

_MS: Final = 1000
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400


@cache
def _control() -> re.Pattern[str]:
    """C0 without tab, DEL, C1, line and paragraph separators, and what turns the writing direction."""
    return re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def safe(text: str) -> str:
    """Escape control characters, line ends included."""
    if text.isascii() and text.isprintable():
        return text
    return _control().sub(_escape, text)


def safe_lines(text: str) -> str:
    """Escape control characters but keep line ends."""
    return "\n".join(safe(line) for line in text.split("\n"))


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    named = {"\n": "\\n", "\r": "\\r"}.get(character)
    code = ord(character)
    return named or (f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}")  # noqa: PLR2004 - one byte


def clip(text: str, most: int) -> str:
    """Shorten to `most` characters, saying so with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def compact(value: Any, most: int = 60) -> str:  # noqa: ANN401 - any JSON value
    """Show a JSON value in one short line; strings without quotes."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return clip(safe(text[: most * 2]), most)


def count(number: int, noun: str, plural: str = "") -> str:
    """Spell `1 unit`, `2 units`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def duration(ms: float) -> str:
    """Spell a time span as a person would: `340 ms`, `4.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if ms < _MS:
        return f"{int(ms)} ms"
    seconds = ms / _MS
    if seconds < _MINUTE_S:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < _HOUR_S:
        return f"{whole // 60} min {whole % 60} s"
    if whole < _DAY_S:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def size(count_bytes: int) -> str:
    """Spell a size in binary units."""
    number = float(count_bytes)
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:  # noqa: PLR2004 - the step of binary units
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def local_time(at_ms: int | None) -> str:
    """Spell a moment in the reader's own time zone."""
    if at_ms is None:
        return "-"
    return datetime.fromtimestamp(at_ms / _MS, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def ago(at_ms: int | None, now_ms: int) -> str:
    """Spell how long ago something was."""
    return "-" if at_ms is None else f"{duration(max(0, now_ms - at_ms))} ago"
