"""`fork --explain --json`: what a fork would reuse and run, why, and the tokens and dollars at stake."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from interlock.decide.estimate import Estimate
from interlock.driver.forking import Explained, Stake, in_all
from interlock.views.values import SCHEMA


def fork_view(found: Explained, estimate: Estimate) -> dict[str, Any]:
    """The object. `saved` is what reused units had cost; `again` what those that run again had cost, null: unknown.

    Both hold the loops before and the judges, too.
    """
    steps = [_step(step, found) for step in found.steps]
    units = [unit for step in steps for unit in step["units"] or ()]
    return {
        "schema": SCHEMA,
        "forked_from": found.run,
        "plan_hash": found.plan_hash,
        "steps": steps,
        "reused": sum(unit["action"] == "reuse" for unit in units),
        "to_run": sum(unit["action"] == "run" for unit in units),
        "saved": _in_all(step["saved"] for step in steps),
        "again": _in_all(step["again"] for step in steps),
        "estimate": msgspec.to_builtins(estimate),
    }


def _step(step: Any, found: Explained) -> dict[str, Any]:  # noqa: ANN401 - a ForkStep of decide
    units = None
    if step.units is not None:
        units = [
            {
                "id": unit.id,
                "action": unit.action,
                "why": unit.why,
                "changed": list(unit.changed),
                "origin": msgspec.to_builtins(unit.origin),
                **msgspec.to_builtins(found.stakes[unit.id]),
            }
            for unit in step.units
        ]
    beside = [{"action": action, **msgspec.to_builtins(stake)} for action, stake in found.beside.get(step.id, ())]
    stakes = {
        name: _in_all(one for one in (*(units or ()), *beside) if one["action"] == action)
        for name, action in (("saved", "reuse"), ("again", "run"))
    }
    return {"id": step.id, "action": step.action, "why": step.why, **stakes, "units": units}


def _in_all(stakes: Iterable[dict[str, Any]]) -> dict[str, Any]:
    chosen = list(stakes)
    tokens = in_all([one["tokens"] for one in chosen])
    built: dict[str, Any] = msgspec.to_builtins(
        Stake(tokens=tokens, cost_usd=in_all([one["cost_usd"] for one in chosen]))
    )
    return built
