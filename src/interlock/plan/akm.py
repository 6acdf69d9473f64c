"""Spellings of akm 0.9 that are valid here unchanged: the envelope, the `unit:` bag and `llm`.

Guarantee: what has a counterpart here means the same; what has none is accepted and said in a note.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from interlock.model.workflow import RunDecl, UsesDecl
from interlock.plan import fields as f
from interlock.plan import settings
from interlock.plan.diagnose import Source
from interlock.plan.scalars import to_json
from interlock.plan.settings import Layer, Setting
from interlock.plan.targets import read_uses
from interlock.plan.yaml import Mapping, Node, Scalar

ENVELOPE_KEYS: Final = (
    "type",
    "description",
    "tags",
    "when_to_use",
    "xrefs",
    "updated",
    "timestamp",
    "generated",
    "verified",
    "provenance",
    "status",
    "stale_after",
)
UNIT_KEYS: Final = (*settings.KEYS, "llm", "output", "exec", "workflow", "with")
LLM_KEYS: Final = ("temperature", "max_tokens", "extra_params")
LLM_IGNORED: Final = ("supports_json_schema", "context_length", "enable_thinking", "reasoning_effort")
EXEC_KEYS: Final = ("command", "cwd", "pass_env")


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """What a `unit:` bag says."""

    layer: Layer = {}
    target: RunDecl | UsesDecl | None = None
    has_target: bool = False
    """Whether it says one, be it one that can't be read."""
    output: Node | None = None
    bindings: Node | None = None
    """Its `with`."""


def read_unit(source: Source, node: Node, what: str) -> Unit:
    """Read a `unit:` bag; an unreadable one is empty."""
    written = f.mapping(source, node, what)
    if written is UNSET:
        return Unit(layer=settings.unreadable(node.place), has_target=True)
    fields = f.Fields(source, written, what, UNIT_KEYS)
    layer = {**read_llm(fields), **settings.read_layer(fields)}
    target = _exec(fields, layer)
    child = fields.read("workflow", read_uses)
    if target is not None and child is not UNSET:
        source.error(fields.place_of("workflow"), "two-targets", f"{what} has both 'exec' and 'workflow'", "keep one")
    return Unit(
        layer=layer,
        target=target or (None if child is UNSET else child),
        has_target="exec" in fields or "workflow" in fields,
        output=fields.node("output"),
        bindings=fields.node("with"),
    )


def read_llm(fields: f.Fields) -> Layer:
    """Read the `llm` bag that stands in `fields`."""
    bag = fields.read("llm", f.mapping)
    if bag is UNSET:
        return {}
    inner = f.Fields(fields.source, bag, "'llm'", (*LLM_KEYS, *LLM_IGNORED))
    for key in LLM_IGNORED:
        if key in inner:
            fields.source.note(inner.place_of(key), f"'llm.{key}' has no counterpart here and is ignored")
    layer = settings.read_layer(inner)
    return {key: layer[key] for key in LLM_KEYS if key in layer}


def _exec(fields: f.Fields, layer: Layer) -> RunDecl | None:
    bag = fields.read("exec", f.mapping)
    if bag is UNSET:
        return None
    inner = f.Fields(fields.source, bag, "'exec'", EXEC_KEYS)
    inner.require("command")
    argv = inner.read("command", f.argv)
    cwd = inner.read("cwd", f.text)
    if cwd is not UNSET:
        layer["cwd"] = Setting(cwd, inner.place_of("cwd"))
    if inner.read("pass_env", f.names) is not UNSET:
        note = "'exec.pass_env' is not needed: children get the user's environment"
        fields.source.note(inner.place_of("pass_env"), note)
    return None if argv is UNSET else RunDecl(place=inner.place_of("command"), argv=argv)


def from_reference(node: Node) -> Scalar | None:
    """Return the reference of akm's `{ from: <reference> }`, None for anything else."""
    if isinstance(node, Mapping) and [entry.key.text for entry in node.entries] == ["from"]:
        inner = node.entries[0].value
        if isinstance(inner, Scalar) and inner.text.startswith(("params.", "steps.")):
            return inner
    return None


def read_envelope(fields: f.Fields) -> dict[str, Any]:
    """Return the envelope's values as written, checking the two that mean something here."""
    kind = fields.read("type", f.choice(("workflow",)))
    description = fields.read("description", f.text)
    found: dict[str, Any] = {}
    for key in ENVELOPE_KEYS:
        node = fields.node(key)
        if node is not None and key not in {"type", "description"}:
            found[key] = to_json(node, fields.source)
    typed: dict[str, str | UnsetType] = {"type": kind, "description": description}
    return {key: value for key, value in typed.items() if value is not UNSET} | found
