"""Ceilings of the whole run, and what a dispatch holds back until its usage is known.

A call of an API reserves its output cap; any other prompt the 95th percentile of what its engine was seen to use,
else the engine's `reserve_tokens`. Dollars are held back at the 95th percentile once the engine told some. Unknown
usage is charged at what was reserved, unknown cost stays unknown. A ceiling stops pending dispatches, lets running
units end and fails the step, whatever `on_error` says.
"""

from __future__ import annotations

import math
from typing import Final, TypeVar

from interlock.decide.now import Now
from interlock.decide.upcoming import engine_of
from interlock.model.events import UnitKind
from interlock.model.plan import Prompt
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot

_Number = TypeVar("_Number", int, float)
NO_LIMIT: Final = 1 << 30
_TIMES_SEEN: Final = 5
"""Answers of an engine before what it was seen to use is believed."""


def ceiling(snap: Snapshot, name: str) -> float | None:
    """Return a budget ceiling with its amendments; one of a run above lifts a lower one below it."""
    value: float | None = getattr(snap.plan.budget, name)
    if value is None:
        # what was raised here is for those below
        return None
    raised = [level.raised[name] for level in snap.levels if name in level.raised]
    return max(snap.raised.get(name, value), *raised) if raised else value


def lifted(snap: Snapshot, name: str) -> list[float]:
    """Return the ceilings that to raise it here lifts: the run's own, else those that runs below it may have."""
    own = ceiling(snap, name)
    if own is not None:
        return [own]
    raised = [level.raised[name] for level in snap.levels if name in level.raised]
    below: list[float | None] = [getattr(plan.budget, name) for plan in snap.plan.children.values()]
    return [max(value, *raised) if raised else value for value in below if value is not None]


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
    seen = snap.usage_seen.get(name, [])
    if len(seen) >= _TIMES_SEEN:
        return _high(seen)
    return 0 if engine is None else engine.reserve_tokens


def price(snap: Snapshot, spec: PlanStep, kind: UnitKind) -> float:
    """Return the dollars that one dispatch holds back; 0 where none are known."""
    seen = snap.cost_seen.get(engine_of(spec, kind) or "", [])
    return _high(seen) if len(seen) >= _TIMES_SEEN else 0.0


def money_left(snap: Snapshot) -> float:
    """Return what the ceiling leaves beside what is spent and held back for prompts in flight."""
    top = ceiling(snap, "max_cost_usd")
    return math.inf if top is None else top - snap.cost_usd - _held_usd(snap)


def affordable(money: float, each: float) -> int:
    """Return how many dispatches at `each` dollars the money is enough for."""
    # sums of cents as floats miss by less than this
    return NO_LIMIT if not each or money == math.inf else max(0, int((money + 1e-9) // each))


def _held_usd(snap: Snapshot) -> float:
    running = ((step, unit) for step in map(snap.steps.__getitem__, snap.open) for unit in step.running.values())
    own = math.fsum(price(snap, snap.plan.steps[step.index], unit.kind) for step, unit in running)
    return own + math.fsum(map(_held_usd, snap.below))


def _high(seen: list[_Number]) -> _Number:
    """Return the 95th percentile."""
    return sorted(seen)[(95 * len(seen) - 1) // 100]


def exhausted(snap: Snapshot, spec: PlanStep, kind: UnitKind, now: Now) -> str | None:
    """Name the ceiling that forbids another dispatch of that kind for good, with figures, or None.

    What is still in flight may turn out cheaper than reserved, so a reservation forbids only when nothing is.
    """
    needs, each = reservation(snap, spec, kind), price(snap, spec, kind)
    asks = engine_of(spec, kind) is not None
    for level, driven_ms in zip(snap.levels, (now.driven_ms, *now.above_ms), strict=True):
        over = used_up(level, driven_ms, work=kind == "work", asks=asks) or _too_little(level, needs, each)
        if over is not None:
            return over if level is snap else f"{over}, in run {level.run.id} above"
    return None


def used_up(snap: Snapshot, driven_ms: int, *, work: bool, asks: bool) -> str | None:
    """Name the ceiling that is reached, of those that hold for work and for what asks an engine."""
    used: dict[str, float] = {}
    if work:
        used |= {"max_units": snap.dispatched, "max_duration_ms": driven_ms}
    if asks:
        used |= {"max_tokens": snap.tokens, "max_cost_usd": snap.cost_usd}
    for name, spent in used.items():
        top = ceiling(snap, name)
        if top is not None and spent >= top:
            return f"the budget's {written(name)} of {figure(name, top)} is used up ({figure(name, spent)})"
    return None


def _too_little(snap: Snapshot, needs: int, each: float) -> str | None:
    top = ceiling(snap, "max_tokens")
    if top is not None and needs and not snap.reserved_tokens and snap.tokens + needs > top:
        return _leaves("max_tokens", top, snap.tokens, f"{needs:,}")
    top = ceiling(snap, "max_cost_usd")
    if top is not None and not _held_usd(snap) and not affordable(top - snap.cost_usd, each):
        return _leaves("max_cost_usd", top, snap.cost_usd, f"{each:.15g}")
    return None


def _leaves(name: str, top: float, spent: float, needs: str) -> str:
    return f"the budget's {name} of {figure(name, top)} leaves too little ({figure(name, spent)} used) for {needs} more"


def written(name: str) -> str:
    """Return a ceiling's name as the author writes it."""
    return name.removesuffix("_ms")


def figure(name: str, value: float) -> str:
    """Return a ceiling's value for a person."""
    return f"{value / 1000:g}s" if name.endswith("_ms") else f"{value:.15g}"
