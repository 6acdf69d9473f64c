"""What params that look like secrets hold: the texts that must not be shown, wherever in the value they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from interlock.model import canon


def secret_texts(names: Iterable[str], params: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return each text of the named params with its param's name; numbers as their JSON, keys and booleans not."""
    return [(name, text) for name in names if name in params for text in _texts(params[name])]


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _texts(entry)
    elif value is not None and not isinstance(value, bool):
        yield canon.dumps(value).decode()
