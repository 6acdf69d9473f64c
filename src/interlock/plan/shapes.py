"""What a reference can find, judged by the declared schemas before anything runs.

Guarantee: only what can't be true of any fitting value is reported; an open schema is given the benefit of
the doubt.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET

from interlock.model.plan import Param
from interlock.plan.diagnose import Source, did_you_mean, listed
from interlock.plan.links import Link
from interlock.plan.steps import Draft

_PRIMITIVES: Final = frozenset({"string", "number", "integer", "boolean", "null"})
_MERGED: Final = {
    "type": "object",
    "properties": {
        "branch": {"type": "string"},
        "tree": {"type": "string"},
        "merged": {"type": "array"},
        "conflicts": {"type": "array"},
        "rejected": {"type": "array"},
    },
    "additionalProperties": False,
}
_TEXT: Final = {"type": ["string", "null"]}


def declared_shape(of: Param | Draft) -> Any:  # noqa: ANN401 - any JSON Schema
    """Return the schema of a param's value or a step's artifact; `True` when nothing is known."""
    if isinstance(of, Param):
        return msgspec.json.decode(of.schema_json)
    if not of.shape_known:
        return True
    if of.schema is not UNSET:
        return of.schema
    single = of.item_schema if of.map is not None else UNSET
    if single is UNSET:
        single = _TEXT if of.kind in {"prompt", "command", "script"} else True
    if of.map is None:
        return single
    if of.map.reducer == "collect":
        return {"type": "array"}
    return single if of.map.reducer == "vote" else _MERGED


def report_shape(source: Source, link: Link, schema: Any) -> None:  # noqa: ANN401 - any JSON Schema
    """Report the first part of the link that can't be there, or a value that can't be what is wanted."""
    walked = f"{link.ref.root}.{link.ref.name}" + (".output" if link.ref.root == "steps" else "")
    for part in link.ref.path:
        fault = _fault(schema, part)
        if fault is not None:
            message, hint = fault
            source.error(link.place, "impossible-reference", f"{link.what}: '{walked}' {message}", hint)
            return
        schema = _below(schema, part)
        walked += f"[{part}]" if isinstance(part, int) else f".{part}"
    types = _types(schema)
    if types is None or link.wants == "any":
        return
    if link.wants == "list" and "array" not in types:
        message = f"{link.what} must name a list; '{walked}' {_said(schema)}"
        source.error(link.place, "impossible-reference", message, _remedy(schema))
    elif link.wants == "primitive" and not types & _PRIMITIVES:
        message = f"{link.what} must name text, a number or a boolean; '{walked}' {_said(schema)}"
        source.error(link.place, "impossible-reference", message)


def report_nulls(source: Source, link: Link, of: Draft) -> None:
    """Warn of a map over what another one made of its items where one that fails becomes null, which no item may be."""
    continues = of.layer.get("on_error")
    if link.wants != "list" or link.ref.path or continues is None or continues.value != "continue":
        return
    if of.map is None or of.map.reducer != "collect":
        return
    items = _types(_below(declared_shape(of), 0))
    if items is None or "null" in items:
        message = f"{link.what}: '{of.id}' puts null for each item that fails, and the items of a map must not be null"
        source.warning(link.place, "null-items", message, "leave out what is null in a step between")


def _types(schema: Any) -> set[str] | None:  # noqa: ANN401 - as above
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(kind, str):
        return {kind}
    return set(kind) if isinstance(kind, list) else None


def _said(schema: Any) -> str:  # noqa: ANN401 - as above
    if schema is _TEXT:
        return "is plain text"
    return f"is declared as {listed(sorted(_types(schema) or ()))}"


def _remedy(schema: Any) -> str:  # noqa: ANN401 - as above
    return "give that step an 'output' schema, and its output is parsed as JSON" if schema is _TEXT else ""


def _fault(schema: Any, part: str | int) -> tuple[str, str] | None:  # noqa: ANN401 - as above
    """Return why no value of `schema` has `part`."""
    types = _types(schema)
    wanted = "array" if isinstance(part, int) else "object"
    if types is not None and wanted not in types:
        has = f"has no [{part}]" if isinstance(part, int) else f"has no '{part}'"
        return f"{_said(schema)} and {has}", _remedy(schema)
    if not isinstance(schema, dict) or isinstance(part, int):
        return None
    properties = schema.get("properties", {})
    if schema.get("additionalProperties") is False and part not in properties and "patternProperties" not in schema:
        return f"declares no '{part}'", did_you_mean(part, properties)
    return None


def _below(schema: Any, part: str | int) -> Any:  # noqa: ANN401 - as above
    if not isinstance(schema, dict):
        return True
    if isinstance(part, int):
        first = schema.get("prefixItems", ())
        return first[part] if part < len(first) else schema.get("items", True)
    properties = schema.get("properties", {})
    if part in properties:
        return properties[part]
    return True if "patternProperties" in schema else schema.get("additionalProperties", True)
