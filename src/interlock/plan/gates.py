"""`gate:` of a step together with the `### gate` rubric of its section.

Guarantees: a gate that holds nothing is none; loops stay where something new can be said, so only a prompt
loops more than once, and never a step with external effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from interlock.model.workflow import GateDecl, Place
from interlock.plan import fields as f
from interlock.plan.body import Section
from interlock.plan.diagnose import Source
from interlock.plan.targets import KIND_TEXT, Kind, read_command
from interlock.plan.yaml import Mapping, Node

KEYS: Final = ("check", "judge", "judges", "approval", "max_loops", "each")
MAX_LOOPS: Final = 100
MAX_JUDGES: Final = 9


class Gated(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate must know about its step."""

    id: str
    kind: Kind | None
    is_map: bool
    has_schema: bool
    external: bool


def read_gate(source: Source, node: Node | None, section: Section | None, step: Gated) -> GateDecl | None:
    """Return the gate of `step`, None when nothing stands there."""
    rubric = section.rubric if section else None
    near = section.near_gates if section else ()
    wants = isinstance(node, Mapping) and rubric is None and any(node.get(key) for key in ("judge", "judges"))
    for title, place in () if wants else near:
        source.warning(place, "not-a-gate", f"'### {title}' starts no rubric", "write it '### gate'")
    if node is None:
        if rubric is None or section is None or section.rubric_place is None:
            return None
        if step.kind == "route":
            source.error(section.rubric_place, "gate-on-route", "a route promotes nothing that a gate could judge")
        return GateDecl(place=section.rubric_place, rubric=rubric)
    written = f.mapping(source, node, "'gate'")
    if written is UNSET:
        return None
    before = source.errors
    fields = f.Fields(source, written, "'gate'", KEYS)
    gate = _read(fields, rubric)
    faulty = source.errors > before
    if step.kind == "route":
        source.error(fields.place, "gate-on-route", "a route promotes nothing that a gate could judge")
        return None
    _check_judges(fields, gate, step, near)
    if "each" in fields and gate.each and not step.is_map:
        source.error(fields.place_of("each"), "each-without-map", "'each' gates a map's items; this step has no map")
    gate = _bounded(fields, gate, step)
    # what is at fault may be what it should hold
    return gate if faulty or _holds(fields, gate, step) else None


def _read(fields: f.Fields, rubric: str | None) -> GateDecl:
    check = fields.read("check", read_command)
    judge = fields.read("judge", f.text)
    judges = fields.read("judges", f.integer(1, MAX_JUDGES))
    max_loops = fields.read("max_loops", f.integer(1, MAX_LOOPS))
    return GateDecl(
        place=fields.place,
        check=None if check is UNSET else check,
        judge=None if judge is UNSET else judge,
        judges=1 if judges is UNSET else judges,
        approval=fields.read("approval", f.boolean) is True,
        max_loops=None if max_loops is UNSET else max_loops,
        each=fields.read("each", f.boolean) is True,
        rubric=rubric,
    )


def _check_judges(fields: f.Fields, gate: GateDecl, step: Gated, near: Sequence[tuple[str, Place]]) -> None:
    for key in ("judge", "judges"):
        if key in fields and gate.rubric is None:
            message = f"'{key}' has no rubric to judge by"
            hint = f"write it below '### gate' in the section '## {step.id}'"
            for title, place in near[:1]:
                hint = f"write '### {title}' on line {place.line} as '### gate'"
            fields.source.error(fields.place_of(key), "judge-without-rubric", message, hint)
            return


def _bounded(fields: f.Fields, gate: GateDecl, step: Gated) -> GateDecl:
    """Report loops that cannot be, and bound them."""
    if gate.max_loops is None or gate.max_loops == 1:
        return gate
    place = fields.place_of("max_loops")
    if step.external:
        message = "a step with external effects can't loop: repeating it may hurt"
        fields.source.error(place, "loop-on-external", message, "remove 'max_loops' or 'effects: external'")
        return gate
    if step.kind in {"prompt", None}:
        return gate
    message = f"only a prompt can loop; the step is {KIND_TEXT[step.kind]}, so the bound is 1"
    fields.source.warning(place, "loop-without-prompt", message, "remove 'max_loops'")
    return msgspec.structs.replace(gate, max_loops=1)


def _holds(fields: f.Fields, gate: GateDecl, step: Gated) -> bool:
    if (
        gate.check
        or gate.rubric
        or gate.approval
        or {"check", "judge", "judges"} & fields.keys()
        or (step.has_schema and gate.max_loops)
    ):
        return True
    message = f"the gate of '{step.id}' holds nothing"
    hint = f"add 'check', 'approval: true', or a rubric below '### gate' in the section '## {step.id}'"
    fields.source.warning(fields.place, "empty-gate", message, hint)
    return False
