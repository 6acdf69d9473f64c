"""The JSON value in an engine's reply: the whole of it, else its fences, else top-level JSON spans.

Exactly one distinct value that fits the schema is taken; none or several is a miss, whose text is what the engine
is told in the one corrective re-ask. Bounded work: a reply with more than 1,000 fences or spans is a miss.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from interlock.decide.fenced import fences, only_fence, spans
from interlock.decide.values import schema_errors
from interlock.model import canon
from interlock.model.outcome import PLACEHOLDERS

_MOST_TRIES: Final = 1_000
_PLACEHOLDERS: Final = frozenset({"...", "…", "todo", "tbd", "string", "text", "placeholder", "your answer here"})
_ANGLED: Final = r"<[^<>]{1,60}>"


class Found(msgspec.Struct, frozen=True):
    """The value as canonical JSON."""

    json: bytes


class Miss(msgspec.Struct, frozen=True):
    """Why the reply holds no usable value. `misfits`: there was JSON, but none that fits the schema."""

    error: str
    misfits: bool = False


class _Seen(msgspec.Struct):
    """What the candidates of a reply came to: the values that fit, and how the first of the others misses."""

    fitting: dict[bytes, None]
    misfit: str | None = None


def find_json(text: str, schema_json: str, *, alone: bool = False) -> Found | Miss:
    """Return the one value of `text` that fits the schema.

    `alone`: it must be the whole reply, or the whole reply one fence; a value beside other words may be a quotation.
    """
    stripped = text.strip()
    if not stripped:
        return Miss("it was empty")
    misfit: str | None = None
    quoted = (only_fence(stripped),) if alone else (fences(text), spans(text))
    for candidates in (iter((stripped,)), *quoted):
        seen = _look(candidates, schema_json)
        if seen is None:
            return Miss(f"it holds more than {_MOST_TRIES:,} places that may be JSON")
        if len(seen.fitting) > 1:
            return Miss(f"it holds {len(seen.fitting)} different values that fit the schema")
        if seen.fitting:
            return Found(next(iter(seen.fitting)))
        misfit = misfit or seen.misfit
    if misfit is not None:
        return Miss(f"its JSON does not fit the schema: {misfit}", misfits=True)
    return Miss("it holds no JSON value")


def _look(candidates: Iterable[str], schema_json: str) -> _Seen | None:
    """Return what the candidates hold; None when they are too many to look at."""
    seen = _Seen({})
    for tried, candidate in enumerate(candidates):
        if tried == _MOST_TRIES:
            return None
        value = _parse(candidate)
        if value is None:
            continue
        errors = _errors(schema_json, value[0])
        if errors:
            seen.misfit = seen.misfit or "; ".join(errors)
        else:
            seen.fitting[value[1]] = None
    return seen


def _parse(candidate: str) -> tuple[Any, bytes] | None:
    try:
        return canon.normalise(candidate)
    except canon.NotJsonError:
        return None


def _errors(schema_json: str, value: object) -> list[str]:
    errors = schema_errors(schema_json, value)
    if not errors and canon.dumps(value) == schema_json.encode():
        return ["it is the schema itself, not an answer"]
    if not errors and _is_placeholder(value, schema_json):
        return [PLACEHOLDERS]
    return errors


def _is_placeholder(value: object, schema_json: str) -> bool:
    """Tell whether every text in the value stands for a text that was never written; one the schema names is one."""
    texts = list(_texts(value))
    if not all(text.strip().casefold() in _PLACEHOLDERS or re.fullmatch(_ANGLED, text.strip()) for text in texts):
        return False
    return bool(texts) and not _named(schema_json).intersection(texts)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _texts(entry)


@lru_cache(maxsize=512)
def _named(schema_json: str) -> frozenset[str]:
    """Return the texts that the schema offers by `enum` or `const`."""
    return frozenset(_offered(msgspec.json.decode(schema_json)))


def _offered(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, entry in schema.items():
            yield from _texts(entry) if key in ("enum", "const") else _offered(entry)
    elif isinstance(schema, list):
        for entry in schema:
            yield from _offered(entry)
