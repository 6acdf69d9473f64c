"""TEXT -> Workflow: the table of contents of the parser. Pure, and total: any bytes give a result.

Guarantees: every fault of a file is reported in one pass, sorted by place; there is a workflow exactly when
there is no error; equal workflows give equal values whatever line ends or BOM they were saved with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from interlock.errors import Diagnostic
from interlock.model import canon
from interlock.model.plan import Budget, Param
from interlock.model.workflow import Place, StepDecl, Workflow
from interlock.plan import akm, document
from interlock.plan import fields as f
from interlock.plan import settings as s
from interlock.plan.body import read_sections
from interlock.plan.diagnose import Source
from interlock.plan.document import Document
from interlock.plan.graph import Graph
from interlock.plan.paramdecl import read_params
from interlock.plan.steps import Draft, Given, Start, read_start, read_step
from interlock.plan.yaml import Mapping, Node, compose

KEYS: Final = ("params", "defaults", "budget", "steps")
DEFAULTS_KEYS: Final = (*s.KEYS, "llm")
BUDGET_KEYS: Final = ("max_units", "max_tokens", "max_cost_usd", "max_duration")
MAX_STEPS: Final = 256


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome. `workflow` is None exactly when one of `diagnostics` is an error."""

    workflow: Workflow | None
    diagnostics: tuple[Diagnostic, ...]
    sound: Workflow | None
    """The workflow, or of a faulty one the steps of which all is clear: what can be looked at further."""
    params: tuple[Param, ...] | None
    """Its params, where none of them is at fault."""


def compile_workflow(text: bytes, file: str) -> Compiled:
    """Compile the bytes of a workflow file; `file` is its name in diagnostics."""
    written = document.read(text, file)
    workflow, params = _compile(written)
    failed = workflow is None or written.source.failed
    return Compiled(
        workflow=None if failed else workflow,
        diagnostics=written.source.diagnostics(),
        sound=workflow,
        params=params,
    )


def _compile(written: Document) -> tuple[Workflow | None, tuple[Param, ...] | None]:
    source = written.source
    root = compose(written.front, source) if written.front is not None else None
    if root is None and not source.failed:
        source.error(Place(1, 1, 3), "no-steps", "the front matter is empty", "it needs 'steps:'")
    if root is None:
        return None, None
    top = f.mapping(source, root, "the front matter")
    if top is UNSET:
        return None, None
    fields = f.Fields(source, top, "the front matter", (*KEYS, *akm.ENVELOPE_KEYS))
    before = source.errors
    read = fields.read("params", read_params)
    params = () if read is UNSET else read
    # where none are written, what is wrong beside them may be how they are spelled
    sound = source.errors == before and (read is not UNSET or not source.failed)
    are_known = sound or isinstance(fields.node("params"), Mapping)
    drafts, nameless = _read_steps(written, fields)
    graph = Graph(source, drafts, nameless=nameless)
    graph.check_links(params if are_known else None)
    workflow = _workflow(written, fields, params, graph)
    return workflow, params if sound and (read is not UNSET or not source.failed) else None


def _workflow(written: Document, fields: f.Fields, params: tuple[Param, ...], graph: Graph) -> Workflow:
    source = written.source
    envelope = akm.read_envelope(fields)
    budget = fields.read("budget", _read_budget)
    return Workflow(
        file=source.file,
        lines=source.lines,
        source_sha256=canon.sha256(written.text.encode()),
        name=source.file.rpartition("/")[2].removesuffix(".md"),
        description=envelope.get("description", ""),
        params=params,
        steps=tuple(_step(draft, graph) for draft in graph.drafts if draft.sound),
        budget=Budget() if budget is UNSET else budget,
        envelope=envelope,
        notices=source.notices(),
    )


def _read_steps(written: Document, fields: f.Fields) -> tuple[list[Draft], bool]:
    """Return the steps, and whether there is one without an id that could be read."""
    source = written.source
    before = source.unclear
    defaults = fields.read("defaults", _read_defaults)
    sound = source.unclear == before
    if defaults is UNSET and "defaults" in fields:
        sound, defaults = False, s.unreadable(fields.place_of("defaults"))
    fields.require("steps")
    listed = fields.read("steps", f.sequence)
    items: Sequence[Node] = () if listed is UNSET else listed.items
    if listed is not UNSET and not items:
        source.error(listed.place, "no-steps", "a workflow needs at least one step")
    if len(items) > MAX_STEPS:
        message = f"{len(items)} steps; a workflow may have at most {MAX_STEPS}"
        source.error(fields.place_of("steps"), "too-many-steps", message, "fan out with 'map', or use a child workflow")
        return [], True
    starts = [read_start(source, item) for item in items]
    named = [start for start in starts if start is not None and start.id]
    nameless = listed is UNSET or len(named) < len(items)
    sections = read_sections(written, [start.id for start in named], nameless=nameless)
    given = Given(source=source, defaults={} if defaults is UNSET else defaults, sections=sections)
    return _drafts(given, starts, sound=sound), nameless


def _drafts(given: Given, starts: Sequence[Start | None], *, sound: bool) -> list[Draft]:
    """Read the steps, those without an id for their own faults alone; `sound` tells whether their defaults are."""
    source = given.source
    drafts: dict[str, Draft] = {}
    for start in starts:
        if start is None:
            continue
        if start.id in drafts:
            first = drafts[start.id].place.line
            message = f"a second step '{start.id}'"
            source.error(start.place, "duplicate-step", message, f"the first stands on line {first}")
        before = source.unclear
        draft = read_step(given, start)
        draft.sound = sound and start.sound and draft.kind is not None and source.unclear == before
        if start.id:
            drafts.setdefault(start.id, draft)
    return list(drafts.values())


def _read_defaults(source: Source, node: Node, what: str) -> s.Layer:
    written = f.mapping(source, node, what)
    if written is UNSET:
        return s.unreadable(node.place)
    fields = f.Fields(source, written, what, DEFAULTS_KEYS)
    return {**akm.read_llm(fields), **s.read_layer(fields)}


def _read_budget(source: Source, node: Node, what: str) -> Budget:
    written = f.mapping(source, node, what)
    if written is UNSET:
        return Budget()
    fields = f.Fields(source, written, what, BUDGET_KEYS)
    units = fields.read("max_units", f.integer(1))
    tokens = fields.read("max_tokens", f.integer(1))
    cost_usd = fields.read("max_cost_usd", f.number(0, above=True))
    duration_ms = fields.read("max_duration", f.duration)
    return Budget(
        max_units=None if units is UNSET else units,
        max_tokens=None if tokens is UNSET else tokens,
        max_cost_usd=None if cost_usd is UNSET else cost_usd,
        max_duration_ms=None if duration_ms is UNSET else duration_ms,
    )


def _step(draft: Draft, graph: Graph) -> StepDecl:
    return StepDecl(
        id=draft.id,
        place=draft.place,
        needs=graph.needs[draft.id],
        explicit_needs=draft.needs is not None,
        routers=graph.routers[draft.id],
        target=draft.target,
        settings=s.to_settings(draft.layer),
        map=draft.map,
        route=draft.route,
        inputs=draft.inputs,
        with_=draft.with_,
        output_schema_json=None if draft.schema is UNSET else canon.dumps(draft.schema).decode(),
        gate=draft.gate,
        places=draft.places,
        defaulted=draft.defaulted,
    )
