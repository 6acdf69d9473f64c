"""A run's birth: its id, and the rows it starts with."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from interlock.model.plan import Plan
from interlock.plan.freeze import freeze
from interlock.store.base import NewRun, NewStep


def new_run_id(wall_ms: int) -> str:
    """Return an id such as `20261130-131702-3f9a2c41`: UTC date and time, then milliseconds and chance in hex."""
    moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{wall_ms % 1000:03x}{secrets.token_hex(3)[:5]}"


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
            NewStep(id=step.id, gate="none" if step.gate is None else "each" if step.gate.each else "step")
            for step in plan.steps
        ),
        key=key,
    )
