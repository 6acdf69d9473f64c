"""`isolation: worktree` and `reducer: merge`: what they fit, and what they need of the repository.

Guarantees: a default reaches only the steps that can work in a worktree, what a step says itself and can't have is
an error at its place; a plan with an isolated step names the repository that its worktrees are of.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from msgspec import UNSET

from interlock.model.plan import Command, Engine, Prompt, Script, Target
from interlock.model.workflow import GateDecl, Place, StepDecl
from interlock.plan.diagnose import Source, shown
from interlock.plan.links import Link
from interlock.plan.settings import Layer
from interlock.plan.sources import Missing, Sources


def worktree_links(source: Source, layer: Layer, defaulted: frozenset[str]) -> list[Link]:
    """Return the reference of `worktree_base`; report what can't stand together."""
    isolation, base, dirty = (layer.get(key) for key in ("isolation", "worktree_base", "worktree_uncommitted"))
    # one that can't be read may have been meant to be that
    isolated = isolation is not None and isolation.value in ("worktree", UNSET)
    for key, setting in (("worktree_base", base), ("worktree_uncommitted", dirty)):
        if setting is not None and not isolated and key not in defaulted:
            source.error(setting.place, "no-worktree", f"'{key}' needs a worktree", "add 'isolation: worktree'")
    if base is None or base.value is UNSET or not isolated:
        return []
    if dirty is not None and dirty.value is True:
        message = "a worktree begins at 'worktree_base' or at the uncommitted state, not at both"
        source.error(dirty.place, "two-bases", message, "remove 'worktree_uncommitted' or 'worktree_base'")
    return [Link(ref=base.value, place=base.place, what="'worktree_base'")]


def check_merge(source: Source, layer: Layer, gate: GateDecl | None, places: Mapping[str, Place], own: Place) -> None:
    """Report a merge that has nothing to merge, or whose gate can't look at it."""
    isolation = layer.get("isolation")
    place = places.get("map.reducer", own)
    if isolation is None or isolation.value not in ("worktree", UNSET):
        source.error(place, "merge-without-worktree", "'merge' needs worktrees to merge", "add 'isolation: worktree'")
    if gate is not None and gate.each:
        message = "'each' gates items by themselves, 'merge' checks them as they come together"
        hint = "remove 'each', or collect in this step and merge in the next"
        source.error(places.get("gate.each", place), "each-with-merge", message, hint)


class WorktreeResolver:
    """One workflow's worktrees; `repository` is set once a step has one."""

    def __init__(self, sources: Sources, source: Source) -> None:
        self._sources = sources
        self._source = source
        self._asked: str | Missing | None = None
        self._root = ""
        self.repository: str | None = None

    def isolates(self, decl: StepDecl, target: Target | None, engines: Mapping[str, Engine], cwd: str) -> bool:
        """Tell whether the step's attempts get worktrees, reporting where they can't."""
        if decl.settings.isolation != "worktree" or target is None:
            return False
        place = decl.places.get("isolation", decl.place)
        if not _fits(target, engines):
            if "isolation" in decl.defaulted and (decl.map is None or decl.map.reducer != "merge"):
                return False
            message = f"step '{decl.id}' can't work in a worktree: {_what(target)} changes no files"
            self._source.error(place, "no-worktree", message, "give it an agent, or remove 'isolation: worktree'")
            return False
        self._look(decl, place, cwd)
        return True

    def _look(self, decl: StepDecl, place: Place, cwd: str) -> None:
        if self._asked is None:
            self._asked = self._sources.repository()
            self._root = self._sources.project().root
        found = self._asked
        if isinstance(found, Missing):
            message = f"step '{decl.id}' can't have a worktree: {found.reason}"
            self._source.error(place, "no-repository", message, found.hint)
            return
        self.repository = found
        if not PurePosixPath(self._root, cwd).is_relative_to(found):
            where = decl.places.get("cwd", place) if decl.settings.cwd is not UNSET else place
            message = f"'cwd' of step '{decl.id}' lies outside of the repository: '{shown(cwd)}'"
            self._source.error(where, "cwd-outside", message, f"a worktree holds what lies below {found}")


def _fits(target: Target, engines: Mapping[str, Engine]) -> bool:
    if isinstance(target, Prompt):
        engine = engines.get(target.engine)
        # an engine that is not known was reported already
        return engine is None or engine.kind == "agent"
    return isinstance(target, (Command, Script))


def _what(target: Target) -> str:
    return f"engine '{target.engine}' is a model API and" if isinstance(target, Prompt) else "a Python function"
