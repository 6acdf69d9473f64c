"""Spelling of times and stored JSON in the contract."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

SCHEMA: Final = 1
"""Version of every object that the contract hands out."""


def rfc3339(at_ms: int | None) -> str | None:
    """Spell epoch milliseconds as RFC 3339 in UTC, to the millisecond."""
    if at_ms is None:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def value(stored: bytes | None) -> Any:  # noqa: ANN401 - any JSON value
    """Decode canonical JSON from the journal; absent is `null`, damage is shown as text rather than hidden."""
    if stored is None:
        return None
    try:
        return msgspec.json.decode(stored)
    except msgspec.DecodeError:
        return stored.decode("utf-8", "replace")
