"""The steps of a workflow together: effective needs, routers, and whether every name leads somewhere.

Guarantees: needs point to earlier steps and routes to later ones, so the graph has no cycle; a step refers
only to what it needs, directly or through others (a route's target needs its routers).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from interlock.model.plan import Param
from interlock.model.workflow import Place
from interlock.plan.diagnose import Source, nearest, shown, suggest
from interlock.plan.links import Link
from interlock.plan.shapes import declared_shape, report_nulls, report_shape
from interlock.plan.steps import Draft, Named


class Graph:
    """Who needs whom. Building it reports bad needs and routes."""

    def __init__(self, source: Source, drafts: Sequence[Draft], *, nameless: bool = False) -> None:
        """With `nameless`, some step has no id that could be read: a name of no step may be its."""
        self.source = source
        self.drafts = drafts
        self.nameless = nameless
        self.order = {draft.id: position for position, draft in enumerate(drafts)}
        self.routers = self._routers()
        self.needs = {draft.id: self._needs(position, draft) for position, draft in enumerate(drafts)}
        self._before = self._waits()

    def _waits(self) -> dict[str, frozenset[str]]:
        """Return what each step waits for, directly and through others; all that it could where it says so unreadably."""
        found: dict[str, frozenset[str]] = {}
        doubtful: set[str] = set()
        for draft in self.drafts:
            direct = {*self.needs[draft.id], *self.routers[draft.id], *doubtful}
            if not draft.needs_known or any(need.id not in self.order for need in draft.needs or ()):
                direct.update(found)
            found[draft.id] = frozenset(direct).union(*(found.get(step, frozenset()) for step in direct))
            if not draft.route_known or any(target.id not in self.order for target in draft.route_targets):
                # any step behind it may be what it leads to
                doubtful.add(draft.id)
        return found

    def check_links(self, params: Sequence[Param] | None) -> None:
        """Report references that lead nowhere, or to what the step doesn't wait for; to params only where these are known."""
        declared = {param.name: param for param in params or ()}
        for draft in self.drafts:
            for link in draft.links:
                if link.ref.root == "params":
                    if params is not None:
                        self._check_param(link, declared)
                else:
                    self._check_step(draft, link)

    def _routers(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, dict[str, None]] = {draft.id: {} for draft in self.drafts}
        for position, draft in enumerate(self.drafts):
            for target in draft.route_targets:
                later = [other.id for other in self.drafts[position + 1 :]]
                if self._is_known(target, later) and self._is_later(position, draft, target):
                    found[target.id][draft.id] = None
        return {step: tuple(routers) for step, routers in found.items()}

    def _needs(self, position: int, draft: Draft) -> tuple[str, ...]:
        if draft.needs is None:
            return (self.drafts[position - 1].id,) if position else ()
        earlier = [other.id for other in self.drafts[:position]]
        return tuple(n.id for n in draft.needs if self._is_known(n, earlier) and self._is_earlier(position, draft, n))

    def _is_known(self, named: Named, usable: Iterable[str]) -> bool:
        if named.id in self.order:
            return True
        self._report_unknown(named.id, named.what, named.place, usable)
        return False

    def _report_unknown(self, step: str, what: str, place: Place, usable: Iterable[str]) -> None:
        usable = list(usable)
        if not self.nameless or nearest(step, usable):
            message = f"{what}: there is no step '{shown(step)}'"
            self.source.error(place, "unknown-step", message, suggest(step, usable))

    def _is_earlier(self, position: int, draft: Draft, need: Named) -> bool:
        if self.order[need.id] < position:
            return True
        if need.id == draft.id:
            self.source.error(need.place, "self-need", f"the step '{draft.id}' needs itself", "remove it")
        else:
            message = f"the step '{need.id}' stands later; a step can only need earlier ones"
            self.source.error(need.place, "forward-need", message, f"move '{need.id}' before '{draft.id}'")
        return False

    def _is_later(self, position: int, draft: Draft, target: Named) -> bool:
        if self.order[target.id] > position:
            return True
        message = f"the step '{target.id}' stands earlier; a route goes forward only"
        if target.id == draft.id:
            message = f"the route '{draft.id}' leads to itself"
        self.source.error(target.place, "backward-route", message, "to do a step again, give it a gate")
        return False

    def _check_param(self, link: Link, declared: dict[str, Param]) -> None:
        param = declared.get(link.ref.name)
        if param is None:
            hint = suggest(link.ref.name, declared) or "declare it under 'params'"
            message = f"{link.what}: there is no param '{link.ref.name}'"
            self.source.error(link.place, "unknown-param", message, hint)
            return
        report_shape(self.source, link, declared_shape(param))

    def _check_step(self, draft: Draft, link: Link) -> None:
        name = link.ref.name
        if name not in self.order:
            earlier = [other.id for other in self.drafts[: self.order[draft.id]]]
            self._report_unknown(name, link.what, link.place, earlier)
        elif name == draft.id:
            self.source.error(
                link.place, "self-reference", f"{link.what}: the step '{name}' has no output before it ran"
            )
        elif name not in self._before[draft.id]:
            self._report_unneeded(draft, link)
        elif self.drafts[self.order[name]].kind == "route":
            message = f"{link.what}: '{name}' is a route and has no output"
            self.source.error(link.place, "no-output", message, "refer to what the route looked at")
        else:
            named = self.drafts[self.order[name]]
            report_shape(self.source, link, declared_shape(named))
            report_nulls(self.source, link, named)

    def _report_unneeded(self, draft: Draft, link: Link) -> None:
        name = link.ref.name
        if self.order[name] > self.order[draft.id]:
            message = f"{link.what}: the step '{name}' stands later, so it has no output yet"
            self.source.error(link.place, "forward-reference", message, f"move '{name}' before '{draft.id}'")
            return
        needs = ", ".join((*self.needs[draft.id], name))
        message = f"{link.what}: '{draft.id}' doesn't wait for '{name}'"
        self.source.error(link.place, "unneeded-reference", message, f"write 'needs: [{needs}]'")
