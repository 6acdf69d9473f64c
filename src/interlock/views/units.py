"""A unit as one object of the contract, and which of a run's units count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from interlock.store.base import StepRow, UnitRow
from interlock.views.values import rfc3339, value


def unit_view(unit: UnitRow, step_id: str) -> dict[str, Any]:
    """The unit with what its last attempt left. Only prompts have engine, model, tokens, cost and session.

    Of the completed only a degraded child run has an error: what it is short of.
    """
    return {
        "id": unit.id,
        "step": step_id,
        "item": value(unit.item),
        "state": unit.state,
        "attempt": unit.attempt,
        "reason": "degraded" if unit.state == "completed" and unit.error else unit.reason,
        "result": value(unit.result),
        "engine": unit.engine,
        "model": unit.model,
        "tokens": unit.tokens,
        "cost_usd": unit.cost_usd,
        "session": unit.session,
        "worktree": _worktree(unit),
        "reused": None if unit.reused is None else msgspec.to_builtins(unit.reused),
        "started_at": rfc3339(unit.started_at),
        "ended_at": rfc3339(unit.ended_at),
    }


def _worktree(unit: UnitRow) -> str | None:
    """Return where the unit works, or where what it changed is kept."""
    return unit.worktree if unit.state == "running" or unit.left != unit.base else None


def effective(steps: Sequence[StepRow], read: Callable[[int], Iterable[UnitRow]]) -> Iterator[UnitRow]:
    """Yield each step's work units, those of earlier rounds and loops only where nothing took their place.

    `read(step)` streams one step's units by ordinal. Only a step that was done over is read twice.
    """
    for step in steps:
        again = step.round > 1 or step.loop > 1
        latest = {unit.index: unit.ordinal for unit in read(step.step) if unit.kind == "work"} if again else None
        for unit in read(step.step):
            if unit.kind == "work" and (latest is None or latest[unit.index] == unit.ordinal):
                yield unit
