"""What a step would dispatch next: of which kind, and to which engine."""

from __future__ import annotations

from interlock.model.events import UnitKind
from interlock.model.plan import Prompt
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step


def next_kind(step: Step) -> UnitKind:
    """Return the kind of the unit that starts next: what is ready goes before what is in backoff."""
    if step.ready:
        return step.ready[0].kind
    return step.units[step.backoff[0][1]].kind if step.backoff else "work"


def engine_of(spec: PlanStep, kind: UnitKind) -> str | None:
    """Return the engine that a unit of that kind goes to, None when it goes to none."""
    if kind == "work":
        return spec.target.engine if isinstance(spec.target, Prompt) else None
    if kind == "judge" and spec.gate is not None and spec.gate.judge is not None:
        return spec.gate.judge.engine
    return None


def next_engine(snap: Snapshot, step: Step) -> str | None:
    """Return the engine that the step's next unit goes to, None when it goes to none."""
    return engine_of(snap.plan.steps[step.index], next_kind(step))
