"""Worktrees as far as they are decided: where they begin, what a loop goes on from, and what a merge brings together."""

from __future__ import annotations

import hashlib

import msgspec

from interlock.decide.now import Now
from interlock.decide.reduce import Broken
from interlock.decide.values import UnresolvedError, describe, lookup
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step, Unit
from interlock.model.states import Reason, StepState, UnitState


class Piece(msgspec.Struct, frozen=True):
    """One unit's work in a merge."""

    unit: Unit
    commit: str


def begins_at(snap: Snapshot, spec: PlanStep) -> str | None:
    """Return what the first worktrees of the step begin at, None for a step without. Raises UnresolvedError."""
    if spec.isolation == "none":
        return None
    if spec.worktree_base is not None:
        found = lookup(snap, spec.worktree_base)
        if not isinstance(found, str) or not found or found.startswith("-"):
            text = spec.worktree_base.text
            raise UnresolvedError(f"{text}: a worktree begins at a commit or branch, and this is {describe(found)}")
        return found
    commit = snap.plan.uncommitted if spec.worktree_uncommitted else snap.plan.project.commit
    return commit or snap.plan.project.commit or "HEAD"


def base_of(snap: Snapshot, spec: PlanStep, step: Step, unit: Unit) -> str | None:
    """Return what the unit's next worktree begins at: what is known of its loop or step, else as the plan says."""
    if spec.isolation == "none":
        return None
    first = step.base if unit.loop == 1 else None
    return unit.base or first or begins_at(snap, spec)


def merges(spec: PlanStep) -> bool:
    """Tell whether the step's units are merged."""
    return spec.map is not None and spec.map.reducer == "merge"


def pieces(step: Step) -> list[Piece]:
    """Return what there is to merge, in item order: the completed units that left something."""
    return [
        Piece(unit, unit.left)
        for unit in step.work
        if unit.state is UnitState.COMPLETED and unit.left is not None and unit.left != step.base
    ]


def ask_merge(step: Step, spec: PlanStep, now: Now) -> ev.UnitsAdded:
    """Return the question that brings the step's settled units together."""
    round_part = f"~r{step.round}" if step.round > 1 else ""
    unit_id = f"{spec.id}.merge{round_part}:l{step.loop}"
    shape = {"base": step.base, "commits": [piece.commit for piece in pieces(step)]}
    hashed = "sha256.v1:" + hashlib.sha256(canon.dumps(shape)).hexdigest()
    return ev.UnitsAdded(
        at=now.at,
        step=step.index,
        kind="merge",
        round=step.round,
        loop=step.loop,
        state=StepState.GATING,
        units=(ev.NewUnit(len(step.units), unit_id, None, None, hashed),),
    )


def merge_unit(step: Step) -> Unit | None:
    """Return the merge of the current round and loop, None while it was not asked for."""
    return next((unit for unit in step.asked if unit.kind == "merge"), None)


def merge_failure(unit: Unit) -> Broken:
    """Say why there is no merge; a check that can't be had blocks, all else fails the step."""
    reason = unit.reason if unit.reason == Reason.ISOLATION_FAILED else "check_unavailable"
    return Broken(reason or "check_unavailable", f"{unit.id} gave no merge: {unit.reason}: {unit.error}")


def branch(run_id: str, step: Step) -> str:
    """Return the name of the branch that the merge of this round and loop makes."""
    round_part = f"-r{step.round}" if step.round > 1 else ""
    loop_part = f"-l{step.loop}" if step.loop > 1 else ""
    return f"interlock/{run_id}/{step.id}{round_part}{loop_part}"


def safe_name(unit_id: str) -> str:
    """Return a unit's id as part of a path and of a ref; step ids have no dots, so no two share one."""
    return unit_id.replace(":", ".").replace("~", ".")
