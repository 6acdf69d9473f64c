"""What the gate of a step should say, told in plain Python from the rows alone, beside the journal's own SQL."""

from __future__ import annotations

from collections.abc import Sequence

from interlock.model import canon
from interlock.store.base import ApprovalRow, StepRow, UnitRow

KIND_OF = {"check": "gate", "judge": "judge", "approval": "approval"}
Subject = tuple[int | None, str]


def counted(units: Sequence[UnitRow]) -> list[UnitRow]:
    """The work units of the last round and loop of each item, of one step's units."""
    return list({unit.index: unit for unit in units if unit.kind == "work"}.values())


def subjects(step: StepRow, units: Sequence[UnitRow], artifact: bytes | None) -> list[Subject]:
    """What the gate looks at: the artifact, or each completed item's result."""
    if not step.each:
        return [(None, canon.sha256(artifact or b"null"))]
    done = [unit for unit in counted(units) if unit.state == "completed"]
    return [(unit.index, canon.sha256(unit.result or b"null")) for unit in done]


def passed(step: StepRow, units: Sequence[UnitRow], said: Sequence[ApprovalRow], artifact: bytes | None) -> bool:
    """Say whether every stage passed everything it looks at."""
    return all(
        _overridden(step, units, said, subject) or _stage_passed(step, units, KIND_OF[stage], subject)
        for stage in step.stages
        for subject in subjects(step, units, artifact)
    )


def _stage_passed(step: StepRow, units: Sequence[UnitRow], kind: str, subject: Subject) -> bool:
    asked = [unit for unit in units if unit.kind == kind and _about(step, unit, subject)]
    now = (step.round, step.loop)
    last = max(((unit.round, unit.loop) for unit in asked), default=now) if step.each else now
    asked = [unit for unit in asked if (unit.round, unit.loop) == last]
    yes = [unit for unit in asked if unit.state == "completed" and unit.verdict == "pass"]
    return len(yes) * 2 > len(asked)


def _about(step: StepRow, unit: UnitRow, subject: Subject) -> bool:
    index, tagged = subject
    return unit.subject == tagged and (not step.each or unit.index == index)


def _overridden(step: StepRow, units: Sequence[UnitRow], said: Sequence[ApprovalRow], subject: Subject) -> bool:
    about = {unit.ordinal for unit in units if unit.kind == "approval" and _about(step, unit, subject)}
    overriding = [row for row in said if row.override and row.step == step.step and row.unit in about]
    return bool(overriding) and max(overriding, key=lambda row: row.unit).verdict == "pass"
