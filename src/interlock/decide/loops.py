"""Feedback loops of a gated prompt: the units of the next."""

from __future__ import annotations

from interlock.decide.now import Now
from interlock.decide.reuse import taken_over
from interlock.decide.work import base_hash, base_id, input_hash, shared
from interlock.model import events as ev
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step, Unit


def next_loop(
    snap: Snapshot, spec: PlanStep, step: Step, now: Now, feedback: dict[int | None, bytes]
) -> ev.StepStarted:
    """Return the start of the next loop: the units that were rejected, each with its feedback.

    A rejection of the artifact as a whole (index None of a map) is feedback for every unit.
    """
    whole = feedback.get(None)
    again = [(unit, feedback.get(unit.index, whole)) for unit in step.work]
    rejected = [(unit, said) for unit, said in again if said is not None]
    start = len(step.units)
    context = shared(snap, spec)
    bases = {said: base_hash(snap.plan, spec, context, said) for said in {said for _, said in rejected}}
    units = tuple(
        _unit(step, unit, start + n, said, input_hash(bases[said], unit.item), spec)
        for n, (unit, said) in enumerate(rejected)
    )
    units = taken_over(snap, spec, units)
    return ev.StepStarted(at=now.at, step=step.index, round=step.round, loop=step.loop + 1, units=units)


def _unit(step: Step, unit: Unit, ordinal: int, feedback: bytes, hashed: str, spec: PlanStep) -> ev.NewUnit:
    round_part = f"~r{step.round}" if step.round > 1 else ""
    return ev.NewUnit(
        ordinal,
        f"{base_id(unit.id)}{round_part}~l{step.loop + 1}",
        unit.index,
        unit.item,
        hashed,
        None,
        feedback,
        unit.session if spec.retry.session == "continue" else None,
        unit.left,
        unit.worktree if spec.retry.session == "continue" else None,
    )
