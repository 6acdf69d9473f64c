"""A run's birth: its id, and the rows it starts with."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from interlock.model.plan import Child, Gate, Plan, Step
from interlock.plan.freeze import freeze
from interlock.store.births import NewRun, NewStep, Stage


def new_run_id(wall_ms: int) -> str:
    """Return an id such as `20261130-131702-3f9a2c41`: UTC date and time, then milliseconds and chance in hex."""
    moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{wall_ms % 1000:03x}{os.urandom(3).hex()[:5]}"


def stages(gate: Gate | None) -> tuple[Stage, ...]:
    """Name what the gate holds, in the order in which it is asked."""
    if gate is None:
        return ()
    held: dict[Stage, bool] = {
        "check": gate.check is not None,
        "judge": gate.judge is not None,
        "approval": gate.approval,
    }
    return tuple(stage for stage, asked in held.items() if asked)


def _stages(step: Step) -> tuple[Stage, ...]:
    """Name what is asked about the step's artifact; a merge had its check after each of its parts."""
    merged = step.map is not None and step.map.reducer == "merge"
    return tuple(stage for stage in stages(step.gate) if not (merged and stage == "check"))


def new_run(plan: Plan, run_id: str, params_json: bytes, at: int, key: str | None) -> NewRun:
    """Return the rows of a new run of `plan`."""
    plan_json, plan_hash = freeze(plan)
    return NewRun(
        id=run_id,
        workflow=plan.source,
        plan_hash=plan_hash,
        plan_json=plan_json,
        params_json=params_json,
        created_at=at,
        steps=tuple(
            NewStep(
                id=step.id,
                stages=_stages(step),
                each=step.gate is not None and step.gate.each,
                child=isinstance(step.target, Child),
            )
            for step in plan.steps
        ),
        key=key,
    )
