"""What the language has and this version cannot run: one clear error a place, all with one code.

A later version that learns one of these removes its line here; nothing else has to know.
"""

from __future__ import annotations

from typing import Final

from interlock.model.workflow import StepDecl, UsesDecl
from interlock.plan.diagnose import Source

CODE: Final = "not-supported-yet"
_TARGETS: Final = "this version runs prompts, commands, scripts, Python functions and child workflows"


def report_unsupported(decl: StepDecl, source: Source) -> None:
    """Report everything of a step that this version cannot run."""
    _report_target(decl, source)
    settings = decl.settings
    if isinstance(settings.resources, dict) and settings.resources:
        place = decl.places.get("resources", decl.place)
        source.warning(place, "no-effect", "'resources' does nothing on the local machine", "remove it, or leave it")


def _report_target(decl: StepDecl, source: Source) -> None:
    target = decl.target
    if isinstance(target, UsesDecl) and target.kind == "library":
        hint = f"write './{target.text}' if it is a script beside the workflow"
        source.error(target.place, CODE, f"{_TARGETS}; step '{decl.id}' uses a library asset", hint)
