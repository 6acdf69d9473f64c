"""What looks like a secret in params, and what it holds: the texts that must not be shown, wherever they lie.

A param is marked when its workflow is compiled, by its name or description. Within the others each key that is named
like a secret counts, at any depth: `cfg: {password: ...}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from interlock.model import canon

_GUARDED: Final = (
    r"(^|_)(secrets?|tokens?|passwords?|passwd|passphrase|credentials?|api_?keys?|private_?keys?|access_?keys?)(_|$)"
)
_COUNTED: Final = r"(^|_)(max|min|num|count|n)_"


@lru_cache(maxsize=1024)
def named_secret(name: str) -> bool:
    """Tell whether a param or a key of this name holds a secret by the look of it."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).replace("-", "_").casefold()
    return re.search(_GUARDED, words) is not None and not re.search(_COUNTED, words)


def secret_texts(names: Iterable[str], params: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return each text of the named params, and of keys in others that look like secrets, with what it is called.

    Numbers as their JSON; keys and booleans not.
    """
    marked = dict.fromkeys(name for name in names if name in params)
    found = [(name, text) for name in marked for text in _texts(params[name])]
    others = (name for name in params if name not in marked)
    return found + [pair for name in others for pair in _nested(name, params[name])]


def without_secrets(name: str, value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return the param's value with what its keys that look like secrets hold left out."""
    if isinstance(value, list):
        return [without_secrets(name, entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {
        key: f"[redacted:{name}.{key}]" if _holds_one(key, entry) else without_secrets(f"{name}.{key}", entry)
        for key, entry in value.items()
    }


def secret_keys(name: str, value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    """Yield the paths of keys that look like secrets in a param's value."""
    if isinstance(value, dict):
        for key, entry in value.items():
            path = f"{name}.{key}"
            yield from (path,) if _holds_one(key, entry) else secret_keys(path, entry)
    elif isinstance(value, list):
        for entry in value:
            yield from secret_keys(name, entry)


def _holds_one(key: str, value: object) -> bool:
    return named_secret(key) and value is not None and not isinstance(value, bool)


def _nested(name: str, value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        for key, entry in value.items():
            path = f"{name}.{key}"
            yield from ((path, text) for text in _texts(entry)) if named_secret(key) else _nested(path, entry)
    elif isinstance(value, list):
        for entry in value:
            if isinstance(entry, dict | list):
                yield from _nested(name, entry)


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _texts(entry)
    elif value is not None and not isinstance(value, bool):
        yield canon.dumps(value).decode()
