"""The worktrees of a run as its driver asks for them: their places, their names, what a dead driver left in them.

Guarantees: path and ref follow from run, unit and attempt alone; a driver that takes over keeps under their refs what
attempts without a recorded end had changed, and removes what is as it was made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from interlock.decide.fate import MISSES
from interlock.decide.values import UnresolvedError
from interlock.decide.worktrees import base_of, branch, pieces, safe_name
from interlock.dispatch.base import MergeAsk, MergePart
from interlock.dispatch.git.base import IsolationError, WorktreeAsk
from interlock.dispatch.isolated import Isolation
from interlock.dispatch.processes.markers import Marker
from interlock.model import events as ev
from interlock.model.plan import Plan
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step, Unit
from interlock.model.states import UnitState
from interlock.store.attempt_rows import TreeRow

LOST = ("reserved", "started")


def worktrees_of(plan: Plan, run_id: str) -> Path:
    """Return the folder of a run's worktrees."""
    return Path(plan.project.root, ".interlock", "worktrees", run_id)


def ask_of(plan: Plan, run_id: str, spec: PlanStep, unit_id: str, number: int, commit: str) -> WorktreeAsk:
    """Return the worktree of one attempt."""
    name = safe_name(unit_id)
    return WorktreeAsk(
        root=plan.project.root,
        commit=commit,
        path=str(worktrees_of(plan, run_id) / name / str(number)),
        ref=f"refs/interlock/{run_id}/{name}/{number}",
        cwd=spec.cwd,
    )


class TreeBook:
    """What attempts are asked in the way of worktrees; one per driver."""

    def __init__(self, snap: Snapshot) -> None:
        self._snap = snap
        self._plan = snap.plan

    def worktree(self, step: Step, unit: Unit, number: int, session: str | None) -> WorktreeAsk | None:
        """Return the worktree of the unit's next attempt, None where it has none. Raises UnresolvedError."""
        spec = self._plan.steps[step.index]
        if spec.isolation == "none":
            return None
        if unit.kind == "gate":
            judged = _judged(spec, step, unit)
            if judged is None or _folder(judged) is not None:
                return None
            return self._ask(spec, unit, number, judged.left or base_of(self._snap, spec, step, judged))
        if unit.kind != "work":
            return None
        # the one corrective re-ask goes on where the attempt before left off; a retry begins anew
        corrects = unit.state is UnitState.PENDING and unit.asks > 0 and unit.reason in MISSES
        base = (unit.left if corrects else None) or base_of(self._snap, spec, step, unit)
        ask = self._ask(spec, unit, number, base)
        return msgspec.structs.replace(ask, path=unit.worktree) if session and unit.worktree else ask

    def folder(self, step: Step, unit: Unit) -> str | None:
        """Return the kept folder that a check of one unit's work runs in."""
        spec = self._plan.steps[step.index]
        judged = _judged(spec, step, unit) if unit.kind == "gate" and spec.isolation == "worktree" else None
        place = None if judged is None else _folder(judged)
        return None if place is None or self._plan.repository is None else str(_inside(self._plan, spec, place))

    def merge(self, step: Step, unit: Unit) -> MergeAsk | None:
        """Return what a merge unit brings together. Raises UnresolvedError."""
        spec = self._plan.steps[step.index]
        if unit.kind != "merge":
            return None
        parts = tuple(
            MergePart(
                index=piece.unit.index or 0,
                item_json=piece.unit.item or b"null",
                commit=piece.commit,
                ref=self._ref(piece.unit),
                taken_base=None if piece.unit.origin is None else piece.unit.base or "",
            )
            for piece in pieces(step)
        )
        base = step.base or base_of(self._snap, spec, step, unit) or "HEAD"
        # a place of its own, since a driver that lost the run in its sleep may wake up and go on in the one before
        place = ask_of(self._plan, self._snap.run.id, spec, unit.id, unit.attempt + 1, base)
        return MergeAsk(
            worktree=msgspec.structs.replace(place, cwd=spec.cwd),
            branch=branch(self._snap.run.id, step),
            parts=parts,
            checked=spec.gate is not None and spec.gate.check is not None,
            at_s=self._snap.run.created_at // 1000,
        )

    def _ask(self, spec: PlanStep, unit: Unit, number: int, commit: str | None) -> WorktreeAsk:
        if commit is None:
            raise UnresolvedError(f"nothing says where a worktree of {unit.id} begins")
        return ask_of(self._plan, self._snap.run.id, spec, unit.id, number, commit)

    def _ref(self, unit: Unit) -> str:
        return f"refs/interlock/{self._snap.run.id}/{safe_name(unit.id)}/{unit.attempt}"


def _judged(spec: PlanStep, step: Step, gate: Unit) -> Unit | None:
    """Return the unit whose work a check looks at, None where it looks at a whole map's."""
    each = spec.gate is not None and spec.gate.each
    return step.work[gate.index or 0] if spec.map is None or each else None


def _folder(unit: Unit) -> str | None:
    if unit.left is None or unit.left == unit.base or unit.worktree is None:
        return None
    return unit.worktree if Path(unit.worktree, ".git").exists() else None


def _inside(plan: Plan, spec: PlanStep, place: str) -> Path:
    """Return the step's folder in a worktree at `place`."""
    own = Path(plan.project.root, spec.cwd)
    inside = Path(place, own.relative_to(plan.repository or plan.project.root))
    return inside if inside.is_dir() else Path(place)


class Lost(msgspec.Struct, frozen=True):
    """What the worktrees of dead drivers' attempts came to, by `<unit>/<attempt>`.

    `refused` says of those that could not be settled where they are and why; they stay as they are.
    """

    trees: dict[str, ev.Tree] = {}
    refused: dict[str, str] = {}


def settle_lost(plan: Plan, run_id: str, rows: Iterable[TreeRow]) -> Lost:
    """Settle what dead drivers left. What ended without keeping anything is only removed."""
    isolation = Isolation(Marker(run_id, "", 0, ""))
    with contextlib.closing(isolation):
        return _settle(plan, run_id, rows, isolation)


def _settle(plan: Plan, run_id: str, rows: Iterable[TreeRow], isolation: Isolation) -> Lost:
    found = Lost()
    for row in rows:
        lost = row.state in LOST
        if row.kept_ref is not None or not (lost or Path(row.worktree).exists()):
            continue
        ask = ask_of(plan, run_id, plan.steps[row.step], row.unit_id, row.number, row.base)
        ask = msgspec.structs.replace(ask, path=row.worktree)
        name = f"{row.unit_id}/{row.number}"
        try:
            tree = isolation.settle(isolation.resolved(ask))
        except IsolationError as error:
            found.refused[name] = f"in {row.worktree}, still there: {error}"
            continue
        if lost:
            found.trees[name] = tree
    return found


def lost_notices(lost: Lost, at: int) -> list[ev.Event]:
    """Name what attempts of a dead driver had changed, and what could not be kept under a ref."""
    what = "what a dead driver's attempt {} changed"
    kept = {name: f"is kept: {tree.ref}" for name, tree in lost.trees.items() if tree.ref is not None}
    left = {name: f"could not be kept under a ref, and is {why}" for name, why in lost.refused.items()}
    return [
        *(ev.Notice(at=at, code=f"worktree:{name}", text=f"{what.format(name)} {text}") for name, text in kept.items()),
        *(ev.Notice(at=at, code=f"left:{name}", text=f"{what.format(name)} {text}") for name, text in left.items()),
    ]


def gone_commits(root: str, commits: Collection[str]) -> frozenset[str]:
    """Return those of the commits that the repository does not hold any more."""
    if not commits:
        return frozenset()
    from interlock.dispatch.git.repository import missing  # noqa: PLC0415 - few runs leave commits

    return missing(root, commits)


def with_uncommitted(plan: Plan, run_id: str | None) -> Plan:
    """Return the plan with a commit of the user's uncommitted state where a step takes it along. Raises IsolationError.

    It is kept for the run of that id; without one it is only named, and git forgets it in time.
    """
    if not any(step.worktree_uncommitted for one in plan.whole for step in one.steps):
        return plan
    from interlock.dispatch.git.snapshot import snapshot_commit  # noqa: PLC0415 - few workflows ask for it

    commit = snapshot_commit(plan.project.root, None if run_id is None else _uncommitted_ref(run_id))
    return plan if commit is None else msgspec.structs.replace(plan, uncommitted=commit)


def forget_uncommitted(plan: Plan, run_id: str) -> None:
    """Let go of what was kept for a run that did not come into being."""
    if plan.uncommitted is not None:
        from interlock.dispatch.git.snapshot import drop_ref  # noqa: PLC0415 - few workflows ask for it

        drop_ref(plan.project.root, _uncommitted_ref(run_id))


def _uncommitted_ref(run_id: str) -> str:
    return f"refs/interlock/{run_id}/base"
