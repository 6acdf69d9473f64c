"""What a plan may cost, by what the project's engines were seen to use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from interlock.decide.estimate import Estimate, Sample, estimate, for_a_person
from interlock.decide.preview import StepPlan
from interlock.model.plan import Plan
from interlock.store.base import Store

_MOST_SAMPLES: Final = 2_000
"""The latest calls of the project; older ones tell little of today's prices."""


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What `plan` shows: the plan's hash, step by step what would run, be reused or asked, and what it may cost."""

    plan_hash: str
    steps: tuple[StepPlan, ...]
    estimate: Estimate


def estimate_of(plan: Plan, steps: Sequence[StepPlan], store: Store) -> Estimate:
    """Estimate what is still to run of a plan."""
    history = history_of(plan, store)
    left = {step.id: _to_run(step) for step in steps if step.action in ("run", "ask")}
    return estimate(plan, history, left, {step.id: for_a_person(step.id) for step in steps if step.person})


def history_of(plan: Plan, store: Store) -> list[Sample]:
    """Return what the latest calls of the project used; nothing for a plan that asks no engine."""
    seen = store.usage_history(_MOST_SAMPLES) if any(one.engines for one in plan.whole) else []
    return [Sample(one.engine, one.model, one.input_tokens, one.output_tokens, one.cost_usd) for one in seen]


def _to_run(step: StepPlan) -> int | None:
    return None if step.units is None else sum(unit.action == "run" for unit in step.units)
