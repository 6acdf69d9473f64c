"""The child workflows that a workflow names: found, compiled and checked with the step that calls them.

Guarantees: each file below one root is read and compiled once, however many steps name it; what is wrong in a
child is reported in its own file; a cycle, by real path, or too deep a nesting is one error that names the
chain; the values in `with` are held against the params that the child declares.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from interlock.model.plan import Param, Reference
from interlock.model.workflow import Place, StepDecl, UsesDecl, Workflow
from interlock.plan.compile import compile_workflow
from interlock.plan.diagnose import Source, shown, suggest
from interlock.plan.schema_check import compiled
from interlock.plan.sources import Missing, Sources, WorkflowFile

if TYPE_CHECKING:
    from interlock.errors import Diagnostic

MAX_DEPTH: Final = 8
Resolve = Callable[[Workflow, Sources], "tuple[Diagnostic, ...]"]
"""Resolves a child and returns what is wrong with it; its own children come back to the same `Children`."""


class _Met(msgspec.Struct, frozen=True):
    """A child as far as its callers need it: its params, and how many levels of children lie below it."""

    params: tuple[Param, ...] | None
    height: int = 0


class Children:
    """All child workflows below one root."""

    def __init__(self, file: str, sources: Sources) -> None:
        self.diagnostics: set[Diagnostic] = set()
        self._met: dict[str, _Met] = {}
        self._chain: list[tuple[str, str]] = [(sources.real(), file)]
        self._heights: list[int] = [0]

    def check(self, decl: StepDecl, uses: UsesDecl, sources: Sources, source: Source, resolve: Resolve) -> None:
        """Check the child of one step; its step's faults go to `source`, its own to `diagnostics`."""
        found = sources.workflow(uses.text)
        if isinstance(found, Missing):
            message = f"workflow '{shown(uses.text)}' {found.reason}"
            source.error(uses.place, "bad-workflow", message, found.hint)
            return
        if self._refused(found, uses, source):
            return
        child = self._meet(found, resolve)
        if len(self._chain) + child.height > MAX_DEPTH:
            self._too_deep(found, uses, source)
        else:
            # what was refused here is not told again further up
            self._heights[-1] = max(self._heights[-1], child.height + 1)
        if child.params is not None:
            _check_with(decl, uses, child.params, source)

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
        if read.workflow is None:
            met = _Met(None)
        else:
            self._chain.append((found.real, found.file))
            self._heights.append(0)
            self.diagnostics.update(resolve(read.workflow, found.sources))
            self._chain.pop()
            met = _Met(read.workflow.params, self._heights.pop())
        self._met[found.real] = met
        return met


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
    for param in params:
        if param.required and param.name not in decl.with_:
            message = f"'{shown(uses.text)}' requires the param '{param.name}'"
            place = decl.places.get("with", uses.place)
            source.error(place, "missing-param", message, f"add '{param.name}' to 'with'")


def _check_literal(param: Param, value: object, place: Place, source: Source) -> None:
    error = next(compiled(json.loads(param.schema_json)).iter_errors(value), None)
    if error is None:
        return
    why = "the value does not fit its schema" if param.secret else shown(error.message, 200)
    hint = "give what the child's 'params' ask for"
    source.error(place, "bad-param", f"param '{param.name}' of the child: {why}", hint)


def _refers(value: Any) -> bool:  # noqa: ANN401 - a reference or any JSON value
    """Tell whether any part of the value is known only when the step runs."""
    if isinstance(value, dict):
        return any(_refers(part) for part in value.values())
    if isinstance(value, list):
        return any(_refers(part) for part in value)
    return isinstance(value, Reference)
