"""Reading what agents print: JSON lines among other lines, and fields that may be missing or of another type.

Guarantee: nothing here raises for any bytes; what is not there, or not of the type asked for, is None or empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

Event = dict[str, Any]


def parse(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return the JSON value, None if it is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def events(out: bytes) -> Iterator[Event]:
    """Return the JSON objects that stand on lines of their own; warnings and halves of lines are passed over."""
    for line in out.splitlines():
        if line.lstrip().startswith(b"{") and isinstance(value := parse(line), dict):
            yield value


def dig(value: Any, *path: str | int) -> Any:  # noqa: ANN401 - any JSON value
    """Follow keys and indices; None where one leads nowhere."""
    for key in path:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value):
            value = value[key]
        else:
            return None
    return value


def text_at(value: Any, *path: str | int) -> str:  # noqa: ANN401 - any JSON value
    """Return the string there, "" if there is none."""
    found = dig(value, *path)
    return found if isinstance(found, str) else ""


def count_at(value: Any, *path: str | int) -> int | None:  # noqa: ANN401 - any JSON value
    """Return the whole number of zero or more there."""
    found = dig(value, *path)
    return found if type(found) is int and found >= 0 else None


def total(*counts: int | None) -> int | None:
    """Add what is known; None when nothing is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
