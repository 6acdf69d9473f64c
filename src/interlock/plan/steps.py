"""One entry of `steps:` -> a draft: everything that can be said of a step without looking at the others.

Guarantee: a faulty step still gives a draft as long as it has an id, so that what refers to it is judged in
the same pass.
"""

from __future__ import annotations

from typing import Any, Final, Literal, cast

import msgspec
from msgspec import UNSET

from interlock.model.canon import dumps
from interlock.model.plan import Input, Reference, Route, When
from interlock.model.workflow import GateDecl, MapDecl, Place, PromptDecl, RunDecl, TargetDecl, UsesDecl
from interlock.plan import akm
from interlock.plan import fields as f
from interlock.plan import settings as s
from interlock.plan.body import Section
from interlock.plan.diagnose import Source, shown
from interlock.plan.gates import Gated, read_gate
from interlock.plan.links import Link, read_inputs, read_link, read_with
from interlock.plan.refs import STEP_ID
from interlock.plan.scalars import is_null
from interlock.plan.schema_check import read_schema
from interlock.plan.targets import Kind, kind_of, read_command, read_uses
from interlock.plan.worktrees import check_merge, worktree_links
from interlock.plan.yaml import Mapping, Node, Scalar
from interlock.plan.yaml import Sequence as ListNode

KEYS: Final = ("id", "needs", "run", "uses", "with", "map", "route", "inputs", "output", "gate", "unit", *s.KEYS)
ROUTE_STEP_KEYS: Final = ("id", "needs", "route", "gate")
MAP_KEYS: Final = ("over", "concurrency", "reducer", "output", "unit", *s.KEYS)
ROUTE_KEYS: Final = ("input", "when", "default")
WHEN_KEYS: Final = ("match", "step")
REDUCERS: Final = ("collect", "vote", "merge")
MAX_CONCURRENCY: Final = 256


class Named(msgspec.Struct, frozen=True):
    """A step id as some other step writes it."""

    id: str
    place: Place
    what: str


class Draft(msgspec.Struct, kw_only=True):
    """A step on its own. `needs` is None where the author wrote none; `sound` says that nothing of it is at fault."""

    id: str
    place: Place
    kind: Kind
    needs: tuple[Named, ...] | None = None
    target: TargetDecl | None = None
    layer: s.Layer = {}
    map: MapDecl | None = None
    route: Route | None = None
    route_targets: tuple[Named, ...] = ()
    inputs: tuple[Input, ...] = ()
    with_: dict[str, Reference | Any] = {}
    schema: Any = UNSET
    item_schema: Any = UNSET
    gate: GateDecl | None = None
    links: list[Link] = []
    places: dict[str, Place] = {}
    defaulted: frozenset[str] = frozenset()
    sound: bool = False


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a step is read with."""

    source: Source
    defaults: s.Layer
    sections: dict[str, Section]


def read_id(source: Source, node: Node) -> tuple[str, Place] | None:
    """Return the id of the step at `node`, also one that cannot be, which is reported; None where there is none."""
    if not isinstance(node, Mapping):
        f.wrong(source, node, "a step", "a mapping", "write '- id: <name>'")
        return None
    written = node.get("id")
    if written is None:
        source.error(node.place, "missing-key", "a step needs 'id'")
        return None
    found = f.text(source, written, "'id'")
    if found is UNSET:
        return None
    if not STEP_ID.fullmatch(found):
        hint = "start with a letter or '_', go on with letters, digits, '_' and '-'"
        source.error(written.place, "bad-name", f"'{shown(found)}' cannot be a step's id", hint)
    return found, written.place


def read_step(given: Given, node: Mapping, name: tuple[str, Place]) -> Draft:
    """Read the step at `node`, whose id is `name`."""
    source = given.source
    is_route = node.get("route") is not None
    fields = f.Fields(source, node, "a step", KEYS)
    draft = Draft(id=name[0], place=name[1], kind="route", links=[], places=_places(node))
    draft.needs = _needs(fields)
    if is_route:
        _report_beside_route(fields)
        _read_route(fields, draft)
        draft.gate = _gate(given, fields, draft)
        return draft
    unit = _unit(fields)
    map_fields, map_unit = _read_map(fields, draft)
    _read_target(given, fields, draft, unit.target or map_unit.target)
    _read_settings(given, draft, fields, map_fields, (unit, map_unit))
    _read_schemas(fields, draft, map_fields, (unit, map_unit))
    _read_links(fields, draft, unit.bindings or map_unit.bindings)
    draft.gate = _gate(given, fields, draft)
    return draft


def _places(node: Mapping) -> dict[str, Place]:
    """Return the places of keys and of keys below them, by key path; schemas are reported on while being read."""
    found: dict[str, Place] = {}

    def note(prefix: str, inner: Node, key_place: Place) -> None:
        found[prefix] = inner.place if isinstance(inner, Scalar) else key_place
        if isinstance(inner, ListNode):
            for index, item in enumerate(inner.items):
                note(f"{prefix}[{index}]", item, item.place)
        elif isinstance(inner, Mapping) and not prefix.endswith("output"):
            for entry in inner.entries:
                note(f"{prefix}.{entry.key.text}", entry.value, entry.key.place)

    for entry in node.entries:
        note(entry.key.text, entry.value, entry.key.place)
    return found


def _needs(fields: f.Fields) -> tuple[Named, ...] | None:
    node = fields.node("needs")
    if node is None:
        return None
    found = fields.read("needs", f.names)
    if found is UNSET or not isinstance(node, ListNode):
        # not to know what was meant must not make references to it faults as well
        return None
    return tuple(Named(step, item.place, "'needs'") for step, item in zip(found, node.items, strict=True))


def _unit(fields: f.Fields) -> akm.Unit:
    node = fields.node("unit")
    if node is None:
        return akm.Unit()
    if "map" in fields:
        hint = "move it to 'map.unit'"
        fields.source.error(fields.place_of("unit"), "unit-beside-map", "'unit' stands beside 'map'", hint)
    return akm.read_unit(fields.source, node, "'unit'")


def _read_target(given: Given, fields: f.Fields, draft: Draft, of_unit: RunDecl | UsesDecl | None) -> None:
    run = fields.read("run", read_command)
    uses = fields.read("uses", read_uses)
    written = [key for key in ("run", "uses") if key in fields] + (["unit"] if of_unit else [])
    for key in written[1:]:
        message = f"'{written[0]}' and '{key}' are two targets; a step has one"
        place = fields.place_of(key) if key in fields else fields.place_of("map")
        given.source.error(place, "two-targets", message, "make two steps of it")
    target: TargetDecl | None = next((t for t in (run, uses) if t is not UNSET), None) or of_unit
    if target is None and not written:
        target = _prompt(given, draft)
    draft.target = target
    draft.kind = kind_of(target) if target is not None else ("command" if "run" in fields else "script")


def _prompt(given: Given, draft: Draft) -> PromptDecl:
    section = given.sections.get(draft.id)
    if section is not None and section.text.strip():
        return PromptDecl(place=section.place, text=section.text)
    message = f"the step '{draft.id}' has nothing to do"
    hint = f"add its prompt as a section '## {draft.id}', or give it 'run' or 'uses'"
    if section is not None:
        message = f"the section '## {draft.id}' is empty, so the step has no prompt"
        given.source.error(section.place, "empty-section", message)
    else:
        given.source.error(draft.place, "no-target", message, hint)
    return PromptDecl(place=draft.place, text="")


def _read_map(fields: f.Fields, draft: Draft) -> tuple[f.Fields | None, akm.Unit]:
    written = fields.read("map", f.mapping)
    if written is UNSET:
        return None, akm.Unit()
    inner = f.Fields(fields.source, written, "'map'", MAP_KEYS)
    inner.require("over")
    over_node = inner.node("over")
    over = read_link(fields.source, over_node, "'over'") if over_node is not None else None
    if over is not None:
        draft.links.append(msgspec.structs.replace(over, wants="list"))
    concurrency = inner.read("concurrency", f.integer(1, MAX_CONCURRENCY))
    reducer = inner.read("reducer", f.choice(REDUCERS))
    draft.map = MapDecl(
        over=over.ref if over is not None else Reference(text="", root="params", name=""),
        concurrency=None if concurrency is UNSET else concurrency,
        reducer="collect" if reducer is UNSET else cast("Literal['collect', 'vote', 'merge']", reducer),
    )
    unit_node = inner.node("unit")
    unit = akm.read_unit(fields.source, unit_node, "'map.unit'") if unit_node is not None else akm.Unit()
    return inner, unit


def _read_settings(
    given: Given, draft: Draft, fields: f.Fields, map_fields: f.Fields | None, units: tuple[akm.Unit, akm.Unit]
) -> None:
    in_map = s.read_layer(map_fields) if map_fields is not None else {}
    own = (s.read_layer(fields), units[0].layer, in_map, units[1].layer)
    draft.layer = s.lay_over(given.defaults, own, draft.kind, given.source)
    draft.places.update({key: setting.place for key, setting in draft.layer.items()})
    draft.defaulted = frozenset(draft.layer).difference(*own)
    draft.links += worktree_links(given.source, draft.layer, draft.defaulted)


def _read_schemas(
    fields: f.Fields, draft: Draft, map_fields: f.Fields | None, units: tuple[akm.Unit, akm.Unit]
) -> None:
    source = fields.source
    own = fields.node("output")
    draft.schema = read_schema(source, own, "'output'") if own is not None else UNSET
    if map_fields is not None:
        item = map_fields.node("output")
        draft.item_schema = _both(
            read_schema(source, item, "'map.output'") if item is not None else UNSET,
            read_schema(source, units[1].output, "'output'") if units[1].output is not None else UNSET,
        )
    elif units[0].output is not None:
        draft.schema = _both(draft.schema, read_schema(source, units[0].output, "'output'"))
    if draft.map is not None and draft.item_schema is not UNSET:
        draft.map = msgspec.structs.replace(draft.map, item_schema_json=dumps(draft.item_schema).decode())


def _both(first: Any, second: Any) -> Any:  # noqa: ANN401 - JSON Schemas or UNSET
    """Return the schema of what must fit both."""
    if first is UNSET or second is UNSET or first == second:
        return second if first is UNSET else first
    # an `$id` of its own keeps each one's `#/$defs` references inside of it
    parts = [
        {"$id": f"urn:interlock:{name}", **schema} if isinstance(schema, dict) else schema
        for name, schema in (("step", first), ("unit", second))
    ]
    return {"allOf": parts}


def _read_links(fields: f.Fields, draft: Draft, bindings_of_unit: Node | None) -> None:
    source = fields.source
    node = fields.node("inputs")
    if node is not None:
        draft.inputs, links = read_inputs(source, node)
        draft.links += links
    bindings = fields.node("with") or bindings_of_unit
    if bindings is None:
        return
    if draft.kind not in {"workflow", "library"}:
        hint = "pass data by 'inputs'"
        message = "'with' gives a child workflow its params; the step has none"
        source.error(fields.place_of("with"), "misplaced-setting", message, hint)
        return
    draft.with_, links = read_with(source, bindings, in_map=draft.map is not None)
    draft.links += links


def _gate(given: Given, fields: f.Fields, draft: Draft) -> GateDecl | None:
    effects = draft.layer.get("effects")
    gated = Gated(
        id=draft.id,
        kind=draft.kind,
        is_map=draft.map is not None,
        has_schema=draft.schema is not UNSET or draft.item_schema is not UNSET,
        external=effects is not None and effects.value == "external",
    )
    gate = read_gate(given.source, fields.node("gate"), given.sections.get(draft.id), gated)
    if draft.map is not None and draft.map.reducer == "merge":
        check_merge(given.source, draft.layer, gate, draft.places, draft.place)
    return gate


def _report_beside_route(fields: f.Fields) -> None:
    for key in KEYS:
        if key in fields and key not in ROUTE_STEP_KEYS:
            message = f"'{key}' can't stand beside 'route': a route runs nothing"
            fields.source.error(fields.place_of(key), "beside-route", message, "make two steps of it")


def _read_route(fields: f.Fields, draft: Draft) -> None:
    written = fields.read("route", f.mapping)
    if written is UNSET:
        return
    inner = f.Fields(fields.source, written, "'route'", ROUTE_KEYS)
    inner.require("input", "when")
    input_node, when_node, default_node = inner.node("input"), inner.node("when"), inner.node("default")
    link = read_link(fields.source, input_node, "'input'") if input_node is not None else None
    if link is not None:
        draft.links.append(msgspec.structs.replace(link, wants="primitive"))
    when = _when(fields.source, when_node) if when_node is not None else []
    default = _named(fields.source, default_node, "'default'")
    draft.route_targets = tuple(target for _, target in when) + ((default,) if default else ())
    if link is not None:
        branches = tuple(When(match=match, step=target.id) for match, target in when)
        draft.route = Route(input=link.ref, when=branches, default=default.id if default else None)


def _when(source: Source, node: Node) -> list[tuple[str, Named]]:
    written = f.sequence(source, node, "'when'")
    if written is UNSET:
        return []
    found: dict[str, Named] = {}
    for item in written.items:
        branch = f.mapping(source, item, "an entry of 'when'")
        if branch is UNSET:
            continue
        inner = f.Fields(source, branch, "an entry of 'when'", WHEN_KEYS)
        inner.require(*WHEN_KEYS)
        match = _match(source, inner.node("match"))
        target = _named(source, inner.node("step"), "'step'")
        if match is not None and match in found:
            message = f"'{shown(match)}' is matched twice"
            source.error(inner.place_of("match"), "duplicate-match", message, "only the first could ever be taken")
        elif match is not None and target is not None:
            found[match] = target
    return list(found.items())


def _match(source: Source, node: Node | None) -> str | None:
    if node is None:
        return None
    if is_null(node):
        hint = "a null takes 'default'; quote the text if you mean it"
        source.error(node.place, "null-match", "null never matches", hint)
        return None
    if not isinstance(node, Scalar):
        f.wrong(source, node, "'match'", "text, a number, true or false")
        return None
    return node.text


def _named(source: Source, node: Node | None, what: str) -> Named | None:
    if node is None:
        return None
    found = f.text(source, node, what)
    return None if found is UNSET else Named(found, node.place, what)
