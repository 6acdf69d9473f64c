"""Plain scalars by the YAML 1.2 core schema, and nodes as JSON values.

Guarantee: `on`, `no`, `10:00` and dates are text; where a schema says `type: string` the source text is
taken, so `1.10` and `0123456` stay what they look like. Infinities, NaN and absurdly long numbers, which
JSON cannot carry, are reported.
"""

from __future__ import annotations

import re
from typing import Any, Final

from interlock.plan.diagnose import Source, shown
from interlock.plan.yaml import Mapping, Node, Scalar, Sequence

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_OCTAL: Final = re.compile(r"0o[0-7]+")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LONGEST_NUMBER: Final = 1_000

JsonScalar = str | int | float | bool | None


class NumberError(ValueError):
    """A plain scalar is a number that JSON cannot carry."""


def resolve(scalar: Scalar) -> JsonScalar:
    """Return the value of `scalar` by the core schema. Raises NumberError."""
    text = scalar.text
    if not scalar.plain:
        return text
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    return _number(text)


def _number(text: str) -> str | int | float:
    if _NOT_FINITE.fullmatch(text):
        raise NumberError("infinities and NaN are not JSON")
    for pattern, base in ((_INTEGER, 10), (_OCTAL, 8), (_HEX, 16)):
        if pattern.fullmatch(text):
            if len(text) > _LONGEST_NUMBER:
                raise NumberError(f"a number of more than {_LONGEST_NUMBER} characters")
            return int(text, base)
    if not _FLOAT.fullmatch(text):
        return text
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        raise NumberError("a number beyond what JSON readers can hold")
    return value


def is_null(node: Node) -> bool:
    """Tell whether the value is null: nothing, `~` or `null`, unquoted."""
    return isinstance(node, Scalar) and node.plain and node.text in _NULLS


def to_json(node: Node, source: Source, schema: object = None, *, null_is_text: bool = True) -> Any:  # noqa: ANN401 - any JSON value
    """Return `node` as a JSON value; `schema` says where text is wanted. A number that is not JSON is reported.

    Where text is wanted a written null is text, too, unless `null_is_text` is false.
    """
    if isinstance(node, Sequence):
        items = schema.get("items") if isinstance(schema, dict) else None
        return [to_json(item, source, items, null_is_text=null_is_text) for item in node.items]
    if isinstance(node, Mapping):
        return {
            entry.key.text: to_json(entry.value, source, _property(schema, entry.key.text), null_is_text=null_is_text)
            for entry in node.entries
        }
    wants_text = isinstance(schema, dict) and schema.get("type") == "string" and node.text
    if wants_text and (null_is_text or not is_null(node)):
        return node.text
    try:
        return resolve(node)
    except NumberError as error:
        source.error(node.place, "not-json", str(error), "quote it if it is text")
        return None


def _property(schema: object, name: str) -> object:
    if not isinstance(schema, dict):
        return None
    properties = schema.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    return schema.get("additionalProperties")


def describe(node: Node) -> str:
    """Return what `node` is, for a message: `a list`, `nothing`, `the number 3`, `'text'`."""
    if isinstance(node, Sequence):
        return "a list" if node.items else "an empty list"
    if isinstance(node, Mapping):
        return "a mapping"
    if not node.text:
        return "nothing" if node.plain else "an empty text"
    try:
        value = resolve(node)
    except NumberError:
        return f"'{shown(node.text)}'"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"the number {shown(node.text)}"
    return shown(node.text) if value is None or isinstance(value, bool) else f"'{shown(node.text)}'"
