"""Signs and colours of states, the same wherever a state is shown."""

from __future__ import annotations

import sys
from typing import Final

import msgspec


class Mark(msgspec.Struct, frozen=True):
    """A sign, its ASCII spelling and a colour."""

    sign: str
    plain: str
    colour: str


_MARKS: Final[dict[str, Mark]] = {
    "pending": Mark("·", ".", "bright_black"),
    "running": Mark("▸", ">", "blue"),
    "active": Mark("▸", ">", "blue"),
    "gating": Mark("▸", ">", "blue"),
    "waiting": Mark("◷", "~", "yellow"),
    "blocked": Mark("!", "!", "yellow"),
    "unknown": Mark("?", "?", "yellow"),
    "completed": Mark("✓", "+", "green"),
    "failed": Mark("✗", "x", "red"),
    "skipped": Mark("-", "-", "bright_black"),
    "not_run": Mark("-", "-", "bright_black"),
    "abandoned": Mark("✗", "x", "bright_black"),
}


def mark(state: str) -> Mark:
    """The mark of a state, in ASCII where the terminal's encoding has no more."""
    found = _MARKS.get(state, Mark("?", "?", "white"))
    try:
        found.sign.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return msgspec.structs.replace(found, sign=found.plain)
    return found
