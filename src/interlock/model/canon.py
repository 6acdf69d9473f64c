"""Canonical JSON (RFC 8785) and tagged hashes: the one spelling of a value that is hashed, compared or stored.

Guarantees: equal values give equal bytes; integers beyond 2**53 keep their exact digits (an extension of
RFC 8785, which would refuse them); NaN, infinities, lone surrogates, duplicate keys and more than 64
levels are refused. The fast path is taken only where it is known to give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any, Final

import msgspec
import rfc8785

MAX_DEPTH: Final = 64
# outside of these, RFC 8785 and msgspec write exponents differently
_PLAIN_FROM: Final = 1e-4
_PLAIN_TO: Final = 1e15
_SIMPLE: Final = frozenset({int, str, bool, type(None)})
_TOO_MANY_DIGITS: Final = "a number of more than 4,300 digits"
_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


class NotJsonError(ValueError):
    """The text or value is not JSON by interlock's rules; the message says which rule."""


def _plain(value: Any, depth: int) -> bool:  # noqa: ANN401 - any JSON value
    """Tell whether msgspec's sorted encoding equals RFC 8785 for `value`; raise if it is not JSON at all."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return True
    if kind is float:
        return _plain_float(value)
    if depth >= MAX_DEPTH:
        raise NotJsonError(f"more than {MAX_DEPTH} levels of nesting")
    if kind is list or kind is tuple:
        return all([type(entry) in _SIMPLE or _plain(entry, depth + 1) for entry in value])  # noqa: C419 - every entry must be checked
    if kind is dict:
        plain = True
        for key, entry in value.items():
            if type(key) is not str:
                raise NotJsonError(f"an object key must be a string, not {type(key).__name__}")
            # UTF-16 order and code point order agree on ASCII
            plain = _plain(entry, depth + 1) and key.isascii() and plain
        return plain
    raise NotJsonError(f"a {kind.__name__} is not JSON")


def _plain_float(value: float) -> bool:
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124
        raise NotJsonError("NaN and infinities are not JSON")
    return not value.is_integer() and _PLAIN_FROM <= abs(value) < _PLAIN_TO


def _slow(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Encode what the fast path cannot; scalars and key order are rfc8785's, big integers our own."""
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda pair: pair[0].encode("utf-16-be"))
        return b"{" + b",".join(rfc8785.dumps(k) + b":" + _slow(v) for k, v in items) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(map(_slow, value)) + b"]"
    if type(value) is int:
        return str(value).encode()
    return rfc8785.dumps(value)


def dumps(value: object) -> bytes:
    """Return the canonical JSON of `value` as UTF-8. Raises NotJsonError."""
    try:
        if type(value) in _SIMPLE or _plain(value, 0):
            return _encode(value)
        return _slow(value)
    except (UnicodeEncodeError, rfc8785.CanonicalizationError) as error:
        raise NotJsonError("a lone surrogate is not JSON text") from error
    except NotJsonError:
        raise
    except ValueError as error:
        raise NotJsonError(_TOO_MANY_DIGITS) from error


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise NotJsonError(f"duplicate key {json.dumps(twice)}")
    return found


def _no_constant(name: str) -> object:
    raise NotJsonError(f"{name} is not JSON")


def loads(text: bytes | str) -> Any:  # noqa: ANN401 - any JSON value
    """Parse exactly one JSON value, strictly. Raises NotJsonError with the place of the fault."""
    return normalise(text)[0]


def normalise(text: bytes | str) -> tuple[Any, bytes]:
    """Parse one JSON value strictly and return it with its canonical bytes."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        value = _decode(raw)
        canonical = dumps(value)
        if canonical == raw:
            # the decoder drops duplicate keys silently; a text equal to its own canonical form has none
            return value, canonical
    except (msgspec.DecodeError, RecursionError, NotJsonError, UnicodeDecodeError):
        pass
    value = _strict(raw)
    return value, dumps(value)


def _strict(raw: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise NotJsonError(f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise NotJsonError(f"{error.msg} at line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise NotJsonError(f"more than {MAX_DEPTH} levels of nesting") from error
    except NotJsonError:
        raise
    except ValueError as error:
        raise NotJsonError(_TOO_MANY_DIGITS) from error


def sha256(data: bytes) -> str:
    """Return the tagged hash `sha256:<hex>` of `data`."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def item_digest(canonical_item: bytes) -> str:
    """Return the 16 hex digits that stand for an item in a unit id."""
    return hashlib.sha256(canonical_item).hexdigest()[:16]
