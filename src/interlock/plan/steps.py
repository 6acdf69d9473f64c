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
from interlock.model.workflow import GateDecl, MapDecl, Place, PromptDecl, TargetDecl
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
    """A step on its own. `needs` is None where the author wrote none; `sound` says that all of it is clear."""

    id: str
    place: Place
    kind: Kind | None
    """None where something is written that can't be read."""
    needs: tuple[Named, ...] | None = None
    needs_known: bool = True
    target: TargetDecl | None = None
    layer: s.Layer = {}
    map: MapDecl | None = None
    route: Route | None = None
    route_targets: tuple[Named, ...] = ()
    route_known: bool = True
    inputs: tuple[Input, ...] = ()
    with_: dict[str, Reference | Any] = {}
    schema: Any = UNSET
    item_schema: Any = UNSET
    shape_known: bool = True
    """Whether what the step promotes follows from what is read here."""
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


class Start(msgspec.Struct, frozen=True):
    """A step of which no more is read than its keys and its id, which is empty where there is none."""

    node: Mapping
    fields: f.Fields
    id: str
    place: Place
    sound: bool


def read_start(source: Source, node: Node) -> Start | None:
    """Return the beginning of the step at `node`, with its id, also one that cannot be; None where there is no step."""
    before = source.unclear
    if not isinstance(node, Mapping):
        f.wrong(source, node, "a step", "a mapping", "write '- id: <name>'")
        return None
    fields = f.Fields(source, node, "a step", KEYS)
    fields.require("id")
    written = fields.node("id")
    found = fields.read("id", f.text)
    name = "" if found is UNSET else found
    if written is not None and name and not STEP_ID.fullmatch(name):
        hint = "start with a letter or '_', go on with letters, digits, '_' and '-'"
        source.error(written.place, "bad-name", f"'{shown(name)}' cannot be a step's id", hint)
    return Start(node, fields, name, written.place if written else node.place, source.unclear == before)


def read_step(given: Given, start: Start) -> Draft:
    """Read the step that begins as `start` says."""
    fields = start.fields
    draft = Draft(id=start.id, place=start.place, kind="route", links=[], places=_places(start.node))
    _read_needs(fields, draft)
    if _is_route(fields):
        _report_beside_route(fields)
        _read_route(fields, draft)
        draft.gate = _gate(given, fields, draft)
        return draft
    unit = _unit(fields)
    map_fields, map_unit = _read_map(fields, draft)
    _read_target(given, fields, draft, (unit, map_unit))
    _read_settings(given, draft, fields, map_fields, (unit, map_unit))
    _read_schemas(fields, draft, map_fields, (unit, map_unit))
    _read_links(fields, draft, unit.bindings or map_unit.bindings)
    draft.gate = _gate(given, fields, draft)
    return draft


def _is_route(fields: f.Fields) -> bool:
    return "route" in fields and ("route" not in fields.misspelled or isinstance(fields.node("route"), Mapping))


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


def _read_needs(fields: f.Fields, draft: Draft) -> None:
    node = fields.node("needs")
    found = fields.read("needs", f.names)
    if found is UNSET or not isinstance(node, ListNode):
        # not to know what was meant must not make references to it faults as well
        draft.needs_known = "needs" not in fields
        return
    draft.needs = tuple(Named(step, item.place, "'needs'") for step, item in zip(found, node.items, strict=True))


def _unit(fields: f.Fields) -> akm.Unit:
    node = fields.node("unit")
    if node is None:
        return akm.Unit(has_target="unit" in fields)
    if "map" in fields:
        hint = "move it to 'map.unit'"
        fields.source.error(fields.place_of("unit"), "unit-beside-map", "'unit' stands beside 'map'", hint)
    return akm.read_unit(fields.source, node, "'unit'")


def _read_target(given: Given, fields: f.Fields, draft: Draft, units: tuple[akm.Unit, akm.Unit]) -> None:
    run = fields.read("run", read_command)
    uses = fields.read("uses", read_uses)
    of_unit = units[0].target or units[1].target
    written = [key for key in ("run", "uses") if key in fields and key not in fields.misspelled]
    written += ["unit"] if of_unit else []
    for key in written[1:]:
        message = f"'{written[0]}' and '{key}' are two targets; a step has one"
        place = fields.place_of(key) if key in fields else fields.place_of("map")
        given.source.error(place, "two-targets", message, "make two steps of it")
    draft.target = next((t for t in (run, uses) if t is not UNSET), None) or of_unit
    if written:
        draft.kind = _kind(fields, draft.target)
    elif {"run", "uses", "route"} & fields.keys() or any(unit.has_target for unit in units) or _unread(fields, "map"):
        # a guess says too little of what may stand beside it
        draft.kind = None
        draft.route_known = "route" not in fields
    else:
        draft.target = _prompt(given, draft)
        draft.kind = "prompt"


def _kind(fields: f.Fields, target: TargetDecl | None) -> Kind | None:
    if target is not None:
        return kind_of(target)
    uses = fields.node("uses")
    if isinstance(uses, Scalar) and uses.text.startswith("python:"):
        return "python"
    return "command" if uses is None else None


def _unread(fields: f.Fields, key: str) -> bool:
    """Tell whether something stands at `key` that can't be a mapping."""
    return key in fields and not isinstance(fields.node(key), Mapping)


def _prompt(given: Given, draft: Draft) -> PromptDecl:
    section = given.sections.get(draft.id)
    if section is not None and section.text.strip():
        return PromptDecl(place=section.place, text=section.text)
    if not draft.id:
        # its section can't be found by a name that it doesn't have
        return PromptDecl(place=draft.place, text="")
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
        draft.shape_known = "map" not in fields
        return None, akm.Unit()
    inner = f.Fields(fields.source, written, "'map'", MAP_KEYS)
    inner.require("over")
    over_node = inner.node("over")
    over = read_link(fields.source, over_node, "'over'") if over_node is not None else None
    if over is not None:
        draft.links.append(msgspec.structs.replace(over, wants="list"))
    concurrency = inner.read("concurrency", f.integer(1, MAX_CONCURRENCY))
    reducer = inner.read("reducer", f.choice(REDUCERS))
    draft.shape_known = reducer is not UNSET or "reducer" not in inner
    draft.map = MapDecl(
        over=over.ref if over is not None else Reference(text="", root="params", name=""),
        concurrency=None if concurrency is UNSET else concurrency,
        reducer="collect" if reducer is UNSET else cast("Literal['collect', 'vote', 'merge']", reducer),
    )
    unit_node = inner.node("unit")
    if unit_node is None:
        return inner, akm.Unit(has_target="unit" in inner)
    return inner, akm.read_unit(fields.source, unit_node, "'map.unit'")


def _read_settings(
    given: Given, draft: Draft, fields: f.Fields, map_fields: f.Fields | None, units: tuple[akm.Unit, akm.Unit]
) -> None:
    in_map = s.read_layer(map_fields) if map_fields is not None else {}
    if _unread(fields, "map"):
        in_map = s.unreadable(fields.place_of("map"))
    own = (s.read_layer(fields), units[0].layer, in_map, units[1].layer)
    draft.layer = s.lay_over(given.defaults, own, draft.kind, given.source)
    draft.places.update({key: setting.place for key, setting in draft.layer.items()})
    draft.defaulted = frozenset(draft.layer).difference(*own)
    draft.links += worktree_links(given.source, draft.layer, draft.defaulted)


def _read_schemas(
    fields: f.Fields, draft: Draft, map_fields: f.Fields | None, units: tuple[akm.Unit, akm.Unit]
) -> None:
    source = fields.source
    before = source.errors
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
    unread = any("output" in of.misspelled for of in (fields, map_fields) if of is not None)
    draft.shape_known = draft.shape_known and not unread and source.errors == before and draft.kind is not None


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
    if draft.kind not in {"workflow", "library", None}:
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
        is_map="map" in fields,
        has_schema=draft.schema is not UNSET or draft.item_schema is not UNSET or not draft.shape_known,
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
    before = fields.source.errors
    written = fields.read("route", f.mapping)
    if written is UNSET:
        draft.route_known = False
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
    draft.route_known = fields.source.errors == before and not inner.has_unknown
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
