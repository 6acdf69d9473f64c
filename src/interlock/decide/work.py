"""A step's work: which units it has, their ids and input hashes, and what they all share.

One pure function turns (plan step, params, earlier artifacts, round, loop) into the work list, live and on
resume alike. Unit ids are SPEC section 4's; an input hash is `sha256.v1:<hex>` over everything that shapes a
dispatch but the item's index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from interlock.decide.children import params_of, references
from interlock.decide.values import UnresolvedError, describe, lookup, lookup_json
from interlock.decide.worktrees import begins_at
from interlock.model import canon
from interlock.model.events import NewUnit
from interlock.model.plan import Child, Command, Plan, Prompt, Reference, Target
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step, Unit


class Shared(msgspec.Struct, frozen=True):
    """What all units of a step see: canonical JSON objects."""

    params_json: bytes
    inputs_json: bytes
    base: str | None = None
    """Where the step's worktrees begin."""


def shared(snap: Snapshot, spec: PlanStep) -> Shared:
    """Build the shared context of a step. Raises UnresolvedError."""
    named = {**references(spec.target), **{entry.name: entry.ref for entry in spec.inputs}}
    inputs = {name: lookup_json(snap, ref) for name, ref in named.items()}
    pairs = sorted(inputs.items(), key=lambda pair: pair[0].encode("utf-16-be"))
    body = b",".join(canon.dumps(name) + b":" + value for name, value in pairs)
    return Shared(canon.dumps(snap.run.params), b"{" + body + b"}", begins_at(snap, spec))


def items_of(snap: Snapshot, spec: PlanStep) -> list[Any]:
    """Return the list that a map step goes over. Raises UnresolvedError when it is no list of items."""
    if spec.map is None:
        return [None]
    found = lookup(snap, spec.map.over)
    if not isinstance(found, list):
        raise UnresolvedError(f"{spec.map.over.text}: a map needs a list, and this is {describe(found)}")
    limit = snap.plan.limits.max_items
    if len(found) > limit:
        most = f"the limit of {limit:,} (max_items of [limits])"
        raise UnresolvedError(f"{spec.map.over.text}: {len(found):,} items are more than {most}")
    return found


def work_units(snap: Snapshot, spec: PlanStep) -> tuple[NewUnit, ...]:
    """Return the units of the step's first round and loop. Raises UnresolvedError."""
    base = base_hash(snap.plan, spec, shared(snap, spec))
    items = items_of(snap, spec)
    if isinstance(spec.target, Child):
        for item in items:
            params_of(snap, spec.target, None if spec.map is None else canon.dumps(item))
    if spec.map is None:
        return (NewUnit(0, f"{spec.id}:solo", None, None, input_hash(base, None)),)
    over = spec.map.over
    if None in items:
        raise UnresolvedError(f"{over.text}[{items.index(None)}] is null; {_why_null(snap, over)}")
    seen: dict[str, int] = {}
    return tuple(_unit(spec.id, over.text, base, seen, index, item) for index, item in enumerate(items))


def _why_null(snap: Snapshot, over: Reference) -> str:
    """Say what to do about an item that is null."""
    law = "the items of a map must not be"
    made_by = snap.plan.step(over.name) if over.root == "steps" and not over.path else None
    if made_by is None or made_by.map is None or made_by.on_error != "continue":
        return law
    return f"{law}, and '{over.name}' puts null for what failed: leave that out in a step between"


def _unit(step: str, over: str, base: bytes, seen: dict[str, int], index: int, item: object) -> NewUnit:
    raw = canon.dumps(item)
    digest = canon.item_digest(raw)
    first = seen.setdefault(digest, index)
    if first != index:
        raise UnresolvedError(f"{over}[{index}] is the same item as [{first}]; the items of a map must be distinct")
    return NewUnit(index, f"{step}:{digest}", index, raw, input_hash(base, raw))


def base_hash(plan: Plan, spec: PlanStep, context: Shared, feedback: bytes | None = None) -> bytes:
    """Hash what all units of the step share."""
    shape = shape_of(plan, spec, feedback)
    if context.base is not None:
        shape["worktree"] = context.base
    parts = (canon.dumps(shape), context.params_json, context.inputs_json)
    return hashlib.sha256(b"\0".join(parts)).digest()


def shape_of(plan: Plan, spec: PlanStep, feedback: bytes | None) -> dict[str, Any]:
    """Return what shapes the step's dispatches but for params, inputs and items, by name.

    A model API sees neither commit nor directory, so to its answers they are nothing.
    """
    engine = _engine(plan, spec)
    local = engine is None or engine["kind"] != "llm"
    return {
        "target": msgspec.to_builtins(spec.target),
        "engine": engine,
        "shell": shell_of(plan, spec.target),
        "schema": spec.unit_schema_json,
        "env": list(spec.env),
        "cwd": spec.cwd if local else None,
        "commit": plan.project.commit if local else None,
        "root": plan.project.root if local else None,
        "feedback": None if feedback is None else feedback.decode(),
    }


def shell_of(plan: Plan, target: Target | None) -> object:
    """Return the shell that reads the target's text; None for what is no such text, whatever else the plan holds."""
    reads = isinstance(target, Command) and target.text is not None
    return msgspec.to_builtins(plan.shell) if reads else None


def _engine(plan: Plan, spec: PlanStep) -> dict[str, Any] | None:
    """Return what of its engine shapes a prompt's answer."""
    if not isinstance(spec.target, Prompt):
        return None
    name = spec.target.engine
    engine = next(engine for engine in plan.engines if engine.name == name)
    model = spec.target.model or engine.model
    return {"kind": engine.kind, "driver": engine.driver, "model": model, "env": list(engine.env)}


def input_hash(base: bytes, item: bytes | None) -> str:
    """Return the tagged input hash of one unit."""
    return "sha256.v1:" + hashlib.sha256(base + (item if item is not None else b"\0")).hexdigest()


def next_round(step: Step, units: Iterable[Unit], hashes: dict[int | None, str]) -> tuple[NewUnit, ...]:
    """Return fresh units for the round after the step's, standing for `units`: in its loop, with their feedback."""
    start = len(step.units)
    suffix = f"~r{step.round + 1}" + (f"~l{step.loop}" if step.loop > 1 else "")
    return tuple(
        NewUnit(
            start + n,
            base_id(unit.id) + suffix,
            unit.index,
            unit.item,
            hashes[unit.index],
            feedback=unit.feedback,
            base=unit.base if step.loop > 1 else None,
        )
        for n, unit in enumerate(units)
    )


def base_id(unit_id: str) -> str:
    """Return a work unit's id without round and loop."""
    return unit_id.split("~", 1)[0]


def idempotency_key(run_id: str, unit_id: str) -> str:
    """Return the key that is the same for every attempt, round and loop of a unit."""
    return hashlib.sha256(f"{run_id}\0{base_id(unit_id)}".encode()).hexdigest()[:32]
