"""Branches: which steps a route chooses, and whether a step may run, must be skipped, or has to wait."""

from __future__ import annotations

from enum import Enum

from interlock.decide.reduce import Broken
from interlock.decide.values import UnresolvedError, betrays, describe, lookup
from interlock.model import canon
from interlock.model.plan import Route
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot
from interlock.model.states import StepState

_MET = frozenset({StepState.COMPLETED, StepState.SKIPPED})


class Ready(Enum):
    """What may become of a pending step now."""

    YES = "yes"
    NOT_YET = "not_yet"
    SKIP = "skip"


def readiness(snap: Snapshot, spec: PlanStep) -> Ready:
    """Judge a pending step by its needs and the routers that name it."""
    needs = [snap.by_id[need] for need in spec.needs]
    routers = [snap.by_id[router] for router in spec.routers]
    if any(step.state not in _MET for step in (*needs, *routers)):
        return Ready.NOT_YET
    if spec.explicit_needs and needs and all(step.state is StepState.SKIPPED for step in needs):
        return Ready.SKIP
    if routers and not any(spec.id in router.route for router in routers):
        return Ready.SKIP
    return Ready.YES


def choose(snap: Snapshot, route: Route) -> str | Broken:
    """Return the id of the step that the route's value chooses."""
    try:
        value = lookup(snap, route.input)
    except UnresolvedError as error:
        return Broken("dispatch_error", str(error))
    if isinstance(value, list | dict):
        return Broken("route_failed", f"{route.input.text} is {describe(value)}; a route matches strings and numbers")
    text = None if value is None else value if isinstance(value, str) else canon.dumps(value).decode()
    for branch in route.when:
        if text is not None and branch.match == text:
            return branch.step
    if route.default is not None:
        return route.default
    shown = describe(value) if text is None or betrays(snap, text) else canon.dumps(text).decode()
    return Broken("route_failed", f"{route.input.text} is {shown}, which no `match` names, and there is no default")
