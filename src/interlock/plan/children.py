"""The child workflows that a workflow names: found, compiled, checked with the step that calls them, and embedded.

Guarantees: each file below one root is read and compiled once, however many steps name it; what is wrong in a
child is reported in its own file; a cycle, by real path, or too deep a nesting is one error that names the
chain; the values in `with` are held against the params that the child declares. The hash by which a child is
embedded covers its own children, and nothing of the machine but what its targets name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec

from interlock.errors import Diagnostic
from interlock.model import canon
from interlock.model.plan import Binding, Child, Hole, Param, Plan, Project, Reference
from interlock.model.secret import secret_keys
from interlock.model.workflow import Place, StepDecl, UsesDecl, Workflow
from interlock.plan.compile import compile_workflow
from interlock.plan.diagnose import Source, nearest, shown, suggest
from interlock.plan.schema_check import compiled
from interlock.plan.sources import Missing, Sources, WorkflowFile

MAX_DEPTH: Final = 8
_NO_PROJECT: Final = Project(root="", device=0, inode=0, id="")
"""A child works in the project of the run that opens it."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome. `plan` is None exactly when one of `diagnostics` is an error."""

    plan: Plan | None
    diagnostics: tuple[Diagnostic, ...]


Resolve = Callable[[Workflow, Sources], Resolved]
"""Resolves a child; its own children come back to the same `Children`."""


class _Met(msgspec.Struct, frozen=True):
    """A child as far as its callers need it: its params, the levels of children below it, its key and all plans."""

    params: tuple[Param, ...] | None
    height: int = 0
    key: str | None = None
    plans: dict[str, Plan] = {}


class Embedded(msgspec.Struct, frozen=True):
    """A step's target, and the plans that it needs, by their keys."""

    target: Child
    plans: dict[str, Plan]


class Children:
    """All child workflows below one root."""

    def __init__(self, file: str, sources: Sources) -> None:
        self.diagnostics: set[Diagnostic] = set()
        self._met: dict[str, _Met] = {}
        self._chain: list[tuple[str, str]] = [(sources.real(), file)]
        self._heights: list[int] = [0]

    def check(
        self, decl: StepDecl, uses: UsesDecl, sources: Sources, source: Source, resolve: Resolve
    ) -> Embedded | None:
        """Check and embed the child of one step; its step's faults go to `source`, its own to `diagnostics`."""
        found = sources.workflow(uses.text)
        if isinstance(found, Missing):
            message = f"workflow '{shown(uses.text)}' {found.reason}"
            source.error(uses.place, "bad-workflow", message, found.hint)
            return None
        if self._refused(found, uses, source):
            return None
        child = self._meet(found, resolve)
        if len(self._chain) + child.height > MAX_DEPTH:
            self._too_deep(found, uses, source)
        else:
            # what was refused here is not told again further up
            self._heights[-1] = max(self._heights[-1], child.height + 1)
        if child.params is not None:
            _check_with(decl, uses, child.params, source)
        if child.key is None:
            return None
        bindings = tuple(_binding(name, value) for name, value in sorted(decl.with_.items()))
        return Embedded(Child(path=uses.text, plan=child.key, bindings=bindings), child.plans)

    def _refused(self, found: WorkflowFile, uses: UsesDecl, source: Source) -> bool:
        """Refuse what must not be gone into: a file that is being resolved already, and one that lies too deep."""
        reals = [real for real, _ in self._chain]
        if found.real in reals:
            start = reals.index(found.real)
            names = [name for _, name in self._chain[start:]]
            chain = " -> ".join(shown(name) for name in (*names, names[0]))
            source.error(uses.place, "workflow-cycle", f"a workflow would run itself: {chain}", "break the circle")
            return True
        if len(self._chain) > MAX_DEPTH:
            self._too_deep(found, uses, source)
            return True
        return False

    def _too_deep(self, found: WorkflowFile, uses: UsesDecl, source: Source) -> None:
        chain = " -> ".join(shown(name) for name in (*(name for _, name in self._chain), found.file))
        message = f"child workflows may be nested {MAX_DEPTH} deep, and here it goes deeper: {chain}"
        source.error(uses.place, "workflow-depth", message, "put the steps of one of them into its caller")

    def _meet(self, found: WorkflowFile, resolve: Resolve) -> _Met:
        if found.real in self._met:
            return self._met[found.real]
        read = compile_workflow(found.content, found.file)
        self.diagnostics.update(read.diagnostics)
        if read.sound is None:
            met = _Met(None)
        else:
            self._chain.append((found.real, found.file))
            self._heights.append(0)
            resolved = resolve(read.sound, found.sources)
            self.diagnostics.update(resolved.diagnostics)
            self._chain.pop()
            height = self._heights.pop()
            plan = None if read.workflow is None else resolved.plan
            met = _Met(None, height) if read.params is None else _met(read.params, height, plan)
        self._met[found.real] = met
        return met


def _met(params: tuple[Param, ...], height: int, plan: Plan | None) -> _Met:
    if plan is None:
        return _Met(params, height)
    bare = msgspec.structs.replace(plan, project=_NO_PROJECT, children={})
    key = canon.sha256(canon.dumps(msgspec.to_builtins(bare)))
    return _Met(params, height, key, {**plan.children, key: bare})


def _binding(name: str, value: Any) -> Binding:  # noqa: ANN401 - any JSON value with references in it
    holes: list[Hole] = []
    literal = _literal(value, (), holes)
    return Binding(name=name, value_json=canon.dumps(literal).decode(), holes=tuple(holes))


def _literal(value: Any, at: tuple[str | int, ...], holes: list[Hole]) -> Any:  # noqa: ANN401 - as above
    """Return the value with null in the place of each reference, which goes to `holes`."""
    if isinstance(value, Reference):
        holes.append(Hole(at=at, ref=value))
        return None
    if isinstance(value, dict):
        return {name: _literal(part, (*at, name), holes) for name, part in value.items()}
    if isinstance(value, list):
        return [_literal(part, (*at, place), holes) for place, part in enumerate(value)]
    return value


def _check_with(decl: StepDecl, uses: UsesDecl, params: tuple[Param, ...], source: Source) -> None:
    declared = {param.name: param for param in params}
    for name, value in decl.with_.items():
        place = decl.places.get(f"with.{name}", uses.place)
        if name not in declared:
            hint = suggest(name, declared) if declared else "it declares no params"
            message = f"'{shown(uses.text)}' has no param '{shown(name)}'"
            source.error(place, "unknown-param", message, hint)
        elif not _refers(value):
            _check_literal(declared[name], value, place, source)
    # one that is only misspelled is not missing
    misspelled = {nearest(name, declared) for name in decl.with_ if name not in declared}
    for param in params:
        if param.required and param.name not in decl.with_ and param.name not in misspelled:
            message = f"'{shown(uses.text)}' requires the param '{param.name}'"
            place = decl.places.get("with", uses.place)
            source.error(place, "missing-param", message, f"add '{param.name}' to 'with'")


def _check_literal(param: Param, value: object, place: Place, source: Source) -> None:
    error = next(compiled(json.loads(param.schema_json)).iter_errors(value), None)
    if error is None:
        return
    hidden = param.secret or any(secret_keys(param.name, value))
    why = "the value does not fit its schema" if hidden else shown(error.message, 200)
    hint = "give what the child's 'params' ask for"
    source.error(place, "bad-param", f"param '{param.name}' of the child: {why}", hint)


def _refers(value: Any) -> bool:  # noqa: ANN401 - a reference or any JSON value
    """Tell whether any part of the value is known only when the step runs."""
    if isinstance(value, dict):
        return any(_refers(part) for part in value.values())
    if isinstance(value, list):
        return any(_refers(part) for part in value)
    return isinstance(value, Reference)
