"""What the language has and this version cannot run: one clear error a place, all with one code.

A later version that learns one of these removes its line here; nothing else has to know.
"""

from __future__ import annotations

from typing import Final

from interlock.model.workflow import GateDecl, PromptDecl, StepDecl, UsesDecl
from interlock.plan.diagnose import Source

CODE: Final = "not-supported-yet"
_TARGETS: Final = "this version dispatches commands, scripts and Python functions"


def report_unsupported(decl: StepDecl, source: Source) -> None:
    """Report everything of a step that this version cannot run."""
    _report_target(decl, source)
    settings = decl.settings
    if settings.isolation == "worktree":
        message = f"this version works in the project's own folder; step '{decl.id}' asks for a worktree"
        source.error(decl.places.get("isolation", decl.place), CODE, message, "remove 'isolation: worktree'")
    if decl.map and decl.map.reducer == "merge":
        message = f"this version reduces with 'collect' and 'vote'; step '{decl.id}' asks for 'merge'"
        source.error(decl.places.get("map.reducer", decl.place), CODE, message, "collect the results and merge them")
    if decl.gate:
        _report_gate(decl.id, decl.gate, source)
    if isinstance(settings.resources, dict) and settings.resources:
        place = decl.places.get("resources", decl.place)
        source.warning(place, "no-effect", "'resources' does nothing on the local machine", "remove it, or leave it")


def _report_target(decl: StepDecl, source: Source) -> None:
    target = decl.target
    if isinstance(target, PromptDecl):
        hint = "give the step 'run:' or 'uses:'"
        source.error(decl.place, CODE, f"{_TARGETS}; step '{decl.id}' is a prompt", hint)
    elif isinstance(target, UsesDecl) and target.kind == "workflow":
        hint = f"run it by itself: interlock run {target.text}"
        source.error(target.place, CODE, f"{_TARGETS}; step '{decl.id}' runs a child workflow", hint)
    elif isinstance(target, UsesDecl) and target.kind == "library":
        hint = f"write './{target.text}' if it is a script beside the workflow"
        source.error(target.place, CODE, f"{_TARGETS}; step '{decl.id}' uses a library asset", hint)


def _report_gate(step_id: str, gate: GateDecl, source: Source) -> None:
    asked = [who for who, is_asked in (("a judge", gate.rubric is not None), ("a person", gate.approval)) if is_asked]
    if asked:
        message = f"this version's gates hold a check; step '{step_id}' asks {' and '.join(asked)}"
        source.error(gate.place, CODE, message, "write gate: { check: COMMAND }")
