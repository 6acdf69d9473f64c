"""Ceilings of the whole run, and what a dispatch holds back until its usage is known.

A call of an API reserves its output cap; any other prompt the 95th percentile of what its engine was seen to use,
else the engine's `reserve_tokens`. Unknown usage is charged at that, unknown cost stays unknown. A ceiling stops
pending dispatches, lets running units end and fails the step, whatever `on_error` says.
"""

from __future__ import annotations

from typing import Final

from interlock.decide.now import Now
from interlock.decide.upcoming import engine_of
from interlock.model.events import UnitKind
from interlock.model.plan import Prompt
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot

NO_LIMIT: Final = 1 << 30
_TIMES_SEEN: Final = 5
"""Answers of an engine before what it was seen to use is believed."""


def ceiling(snap: Snapshot, name: str) -> float | None:
    """Return a budget ceiling with its amendments."""
    if name in snap.raised:
        return snap.raised[name]
    value: float | None = getattr(snap.plan.budget, name)
    return value


def reservation(snap: Snapshot, spec: PlanStep, kind: UnitKind) -> int:
    """Return the tokens that one dispatch holds back; 0 when it goes to no engine."""
    name = engine_of(spec, kind)
    if name is None:
        return 0
    engine = next((engine for engine in snap.plan.engines if engine.name == name), None)
    # an agent is capped call by call, and makes many in one session
    one_call = kind == "work" and engine is not None and engine.kind == "llm"
    if one_call and isinstance(spec.target, Prompt) and spec.target.max_tokens is not None:
        return spec.target.max_tokens
    seen = snap.usage_seen.get(name, ())
    if len(seen) >= _TIMES_SEEN:
        return sorted(seen)[(95 * len(seen) - 1) // 100]
    return 0 if engine is None else engine.reserve_tokens


def exhausted(snap: Snapshot, spec: PlanStep, kind: UnitKind, now: Now) -> str | None:
    """Name the ceiling that forbids another dispatch of that kind for good, with figures, or None.

    What is still in flight may turn out cheaper than reserved, so a reservation forbids only when nothing is.
    """
    used: dict[str, float] = {}
    if kind == "work":
        used |= {"max_units": snap.dispatched, "max_duration_ms": now.driven_ms}
    if engine_of(spec, kind) is not None:
        used |= {"max_tokens": snap.tokens, "max_cost_usd": snap.cost_usd}
    for name, spent in used.items():
        top = ceiling(snap, name)
        if top is not None and spent >= top:
            return f"the budget's {written(name)} of {figure(name, top)} is used up ({figure(name, spent)})"
    top = ceiling(snap, "max_tokens")
    needs = reservation(snap, spec, kind)
    if top is not None and needs and not snap.reserved_tokens and snap.tokens + needs > top:
        return f"the budget's max_tokens of {figure('max_tokens', top)} leaves too little ({figure('max_tokens', snap.tokens)} used) for {needs:,} more"
    return None


def written(name: str) -> str:
    """Return a ceiling's name as the author writes it."""
    return name.removesuffix("_ms")


def figure(name: str, value: float) -> str:
    """Return a ceiling's value for a person."""
    return f"{value / 1000:g}s" if name.endswith("_ms") else f"{value:.15g}"
