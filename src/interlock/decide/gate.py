"""Artifact to question, answers to verdict. What can't be judged doesn't pass."""

from __future__ import annotations

from typing import Literal

import msgspec

from interlock.decide.work import base_id
from interlock.model import canon
from interlock.model.events import NewUnit, Verdict
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Step, Unit
from interlock.model.states import UnitState

FEEDBACK_CHARS = 4_000


class Judged(msgspec.Struct, frozen=True):
    """What all answers together say."""

    verdict: Literal["pass", "reject", "unavailable", "open"]
    detail: str = ""


def questions(spec: PlanStep, step: Step, artifact_hash: str) -> tuple[NewUnit, ...]:
    """Return the gate units that must all pass: one for the artifact, or one per completed item."""
    start = len(step.units)
    if spec.gate is None or not spec.gate.each:
        return (NewUnit(start, _gate_id(spec, step, ""), None, None, artifact_hash, artifact_hash),)
    units = [unit for unit in step.work if unit.state is UnitState.COMPLETED]
    return tuple(
        NewUnit(start + n, _gate_id(spec, step, ":" + item_part(unit)), unit.index, unit.item, subject, subject)
        for n, unit in enumerate(units)
        for subject in (canon.sha256(unit.result or b"null"),)
    )


def item_part(unit: Unit) -> str:
    """Return what follows the step's id in a work unit's id: `solo` or the item's digest."""
    return base_id(unit.id).rpartition(":")[2]


def _gate_id(spec: PlanStep, step: Step, item: str) -> str:
    round_part = f"~r{step.round}" if step.round > 1 else ""
    return f"{spec.id}.gate{item}{round_part}:l{step.loop}"


def judge(step: Step) -> Judged:
    """Sum up the step's gate units. A single answer that could not be had blocks; so does a rejection."""
    asked = [unit for unit in step.asked if unit.kind == "gate"]
    if any(unit.state not in (UnitState.COMPLETED, UnitState.FAILED) for unit in asked):
        return Judged("open")
    broken = next((unit for unit in asked if unit.state is UnitState.FAILED or unit.verdict is None), None)
    rejected = [unit for unit in asked if unit.verdict == "reject"]
    if rejected:
        return Judged("reject", "\n".join(_feedback(unit) for unit in rejected)[:FEEDBACK_CHARS])
    if broken is not None:
        return Judged("unavailable", f"{broken.id} gave no verdict: {broken.reason}: {broken.error}")
    return Judged("pass")


def _feedback(unit: Unit) -> str:
    text = msgspec.json.decode(unit.result or b"{}").get("feedback", "")
    return f"item {unit.item.decode()}: {text}" if unit.item is not None else str(text)


def verdict_of(exit_code: int | None) -> Verdict | None:
    """Read a check's exit: 0 passes; 126, 127 and death by signal mean that it could not start."""
    if exit_code is None or exit_code in (126, 127) or exit_code < 0:
        return None
    return "pass" if exit_code == 0 else "reject"


def answer_json(verdict: Verdict, output: bytes) -> bytes:
    """Return the journaled answer of a check: its verdict, and the end of its output as feedback."""
    text = output.decode("utf-8", "replace").strip()
    return canon.dumps({"verdict": verdict, "feedback": text[-FEEDBACK_CHARS:]})
