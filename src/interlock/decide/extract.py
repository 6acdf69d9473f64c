"""The JSON value in an engine's reply: the whole of it, else its fences, else top-level JSON spans.

Exactly one distinct value that fits the schema is taken; none or several is a miss, whose text is what the engine
is told in the one corrective re-ask. Bounded work: at most 1,000 places are tried.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from interlock.decide.values import schema_errors
from interlock.model import canon

_FENCE: Final = re.compile(r"^(`{3,}|~{3,})[^\n`]*\n(.*?)^\1[ \t]*$", re.DOTALL | re.MULTILINE)
_OPENING: Final = re.compile(r"[\[{]")
_MOST_TRIES: Final = 1_000
_PLACEHOLDERS: Final = frozenset({"...", "…", "todo", "tbd", "string", "text", "placeholder", "your answer here"})
_ANGLED: Final = re.compile(r"<[^<>]{1,60}>")
_scan: Final = json.JSONDecoder().raw_decode


class Found(msgspec.Struct, frozen=True):
    """The value as canonical JSON."""

    json: bytes


class Miss(msgspec.Struct, frozen=True):
    """Why the reply holds no usable value. `parsed`: there was JSON, but it does not fit."""

    error: str
    parsed: bool


def find_json(text: str, schema_json: str, *, alone: bool = False) -> Found | Miss:
    """Return the one value of `text` that fits the schema.

    `alone`: it must be the whole reply, or the whole reply one fence; a value beside other words may be a quotation.
    """
    stripped = text.strip()
    if not stripped:
        return Miss("it was empty", parsed=False)
    seen: list[str] = []
    quoted = (_only_fence(stripped),) if alone else (_fences(text), _spans(text))
    for candidates in (iter((stripped,)), *quoted):
        fitting: dict[bytes, None] = {}
        for candidate in candidates:
            value = _parse(candidate)
            if value is None:
                continue
            errors = _errors(schema_json, value[0])
            if errors:
                seen.append("; ".join(errors))
            else:
                fitting[value[1]] = None
        if len(fitting) > 1:
            return Miss(f"it holds {len(fitting)} different values that fit the schema", parsed=True)
        if fitting:
            return Found(next(iter(fitting)))
    if seen:
        return Miss(f"its JSON does not fit the schema: {seen[0]}", parsed=True)
    return Miss("it holds no JSON value", parsed=False)


def _parse(candidate: str) -> tuple[Any, bytes] | None:
    try:
        return canon.normalise(candidate)
    except canon.NotJsonError:
        return None


def _errors(schema_json: str, value: object) -> list[str]:
    errors = schema_errors(schema_json, value)
    if not errors and canon.dumps(value) == schema_json.encode():
        return ["it is the schema itself, not an answer"]
    if not errors and _is_placeholder(value):
        return ["its texts are placeholders, not an answer"]
    return errors


def _is_placeholder(value: object) -> bool:
    """Tell whether every text in the value stands for a text that was never written."""
    texts = list(_texts(value))
    return bool(texts) and all(
        text.strip().casefold() in _PLACEHOLDERS or _ANGLED.fullmatch(text.strip()) for text in texts
    )


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for entry in value:
            yield from _texts(entry)
    elif isinstance(value, dict):
        for entry in value.values():
            yield from _texts(entry)


def _fences(text: str) -> Iterator[str]:
    return (match[2] for match in _FENCE.finditer(text))


def _only_fence(text: str) -> Iterator[str]:
    found = _FENCE.match(text)
    return iter((found[2],) if found is not None and found.end() == len(text) else ())


def _spans(text: str) -> Iterator[str]:
    """Yield the texts of objects and arrays that stand at the top level, left to right."""
    at = 0
    for _ in range(_MOST_TRIES):
        opening = _OPENING.search(text, at)
        if opening is None:
            return
        start = opening.start()
        try:
            _, end = _scan(text, start)
        except json.JSONDecodeError as error:
            if error.msg.startswith("Unterminated string"):
                return
            # what a broken value holds up to its fault is not at the top level
            at = max(error.pos, start + 1)
        except RecursionError:
            return
        else:
            yield text[start:end]
            at = end
