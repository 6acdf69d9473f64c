"""`plan --json`: the plan's hash, and each unit with what would become of it and why, and the estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from interlock.decide.estimate import Estimate
from interlock.decide.preview import StepPlan
from interlock.views.values import SCHEMA


def preview_view(plan_hash: str, plans: Sequence[StepPlan], estimate: Estimate) -> dict[str, Any]:
    """The preview object: by step, flat by what would become of the units that are known by now, and what it may cost.

    Bounds of the estimate that nobody can know are null, never zero.
    """
    steps = [_step(step) for step in plans]
    view: dict[str, Any] = {"schema": SCHEMA, "plan_hash": plan_hash}
    for action in ("run", "reuse", "ask"):
        view[action] = [
            {"id": unit["id"], "step": step["id"], "why": unit["why"]}
            for step in steps
            for unit in step["units"] or ()
            if unit["action"] == action
        ]
    return {**view, "steps": steps, "estimate": msgspec.to_builtins(estimate)}


def _step(step: StepPlan) -> dict[str, Any]:
    units = None if step.units is None else [{"id": u.id, "action": u.action, "why": u.why} for u in step.units]
    return {"id": step.id, "action": step.action, "why": step.why, "units": units}
