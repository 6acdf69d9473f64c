"""From journal rows to a snapshot: the loop on an older state, with no code path of its own."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import msgspec

from interlock.model import events as ev
from interlock.model.plan import Plan
from interlock.model.run import RunInfo, Snapshot
from interlock.model.states import UNIT_ENDED, RunState, StepState, UnitState
from interlock.model.unit import Step, Unit
from interlock.store.base import Loaded, RunRow, StepRow, UnitRow


def run_info(row: RunRow) -> RunInfo:
    """Return the run's own values."""
    return RunInfo(
        id=row.id,
        state=RunState(row.state),
        reason=row.reason,
        detail=row.detail,
        outcome=row.outcome,
        wait_until=row.wait_until,
        created_at=row.created_at,
        driven_ms=row.driven_ms,
        params=msgspec.json.decode(row.params_json),
    )


def restore(
    plan: Plan, loaded: Loaded, units: Iterable[UnitRow], above: Snapshot | None = None
) -> tuple[Snapshot, dict[tuple[int, int], str]]:
    """Rebuild the snapshot; also return the recorded input hash of each completed work unit of an open step.

    What a child used is counted in the runs above it already; what it has in flight is added to theirs.
    """
    snap = Snapshot(plan, run_info(loaded.run), above)
    snap.dispatched, snap.tokens, snap.cost_usd = loaded.dispatched, loaded.tokens, loaded.cost_usd
    snap.raised, snap.accepted, snap.noticed = dict(loaded.raised), dict(loaded.accepted), set(loaded.notices)
    snap.parked, snap.granted = dict(loaded.parked), dict(loaded.granted)
    for row in loaded.steps:
        _step(snap.steps[row.step], row)
    hashes: dict[tuple[int, int], str] = {}
    for unit_row in units:
        step = snap.steps[unit_row.step]
        _add(snap, step, unit_row)
        if unit_row.kind == "work" and unit_row.state == UnitState.COMPLETED and not step.ended:
            hashes[unit_row.step, unit_row.ordinal] = unit_row.input_hash
    for step in snap.steps:
        _settle(step)
    _prompts(snap, loaded)
    snap.halted = _halted(snap)
    snap.open = [step.index for step in snap.steps if not step.ended]
    return snap, hashes


def _step(step: Step, row: StepRow) -> None:
    step.state = StepState(row.state)
    step.reason, step.detail = row.reason, row.detail
    step.round, step.loop = row.round, row.loop
    step.artifact, step.artifact_hash, step.route = row.artifact, row.artifact_hash, row.route


def _add(snap: Snapshot, step: Step, row: UnitRow) -> None:
    new = ev.NewUnit(
        row.ordinal, row.id, row.index, row.item, "", row.subject, row.feedback, row.session, row.base, row.worktree
    )
    unit = Unit(new, row.kind, row.round, row.loop)
    unit.state = UnitState(row.state)
    unit.attempt, unit.retries, unit.not_before = row.attempt, row.retries, row.not_before or 0
    unit.asks = row.asks
    unit.reason, unit.error, unit.result = row.reason, row.error, row.result
    unit.verdict, unit.origin = row.verdict, row.reused
    unit.left = row.left
    if step.base is None and unit.kind == "work" and unit.loop == 1:
        step.base = unit.base
    step.units.append(unit)
    if unit.state is UnitState.RUNNING:
        unit.dispatch = row.dispatch
        step.running[unit.ordinal] = unit
        snap.running += 1
        if not step.child or unit.kind != "work":
            for level in snap.levels:
                level.busy += 1


def _prompts(snap: Snapshot, loaded: Loaded) -> None:
    """Hold back again what prompts in flight had reserved, and recall what engines and sessions used, oldest first."""
    snap.sessions = dict(loaded.sessions)
    for attempt in loaded.open:
        snap.steps[attempt.step].units[attempt.unit].reserve_tokens = attempt.reserve_tokens
        for level in snap.levels:
            level.reserved_tokens += attempt.reserve_tokens
    for seen in reversed(loaded.usage_seen):
        if seen.input_tokens is not None or seen.output_tokens is not None:
            tokens = (seen.input_tokens or 0) + (seen.output_tokens or 0)
            snap.usage_seen.setdefault(seen.engine, []).append(tokens)
        if seen.cost_usd is not None:
            snap.cost_seen.setdefault(seen.engine, []).append(seen.cost_usd)


def _settle(step: Step) -> None:
    """Build what decisions ask for from the units: effective work, queues, counts, first failure.

    What waits for a person is in no queue: nothing is dispatched for it.
    """
    last: dict[int | None, Unit] = {}
    for unit in step.units:
        if unit.kind == "work":
            last[unit.index] = unit
        elif (unit.round, unit.loop) == (step.round, step.loop):
            step.asked.append(unit)
    step.work = list(last.values())
    for unit in step.work:
        step.counts[unit.state] += 1
    engaged = [unit for unit in step.asked if unit.kind != "approval"]
    step.asking = sum(unit.state not in UNIT_ENDED for unit in engaged)
    for unit in (*step.work, *engaged):
        if unit.state is UnitState.PENDING:
            step.ready.append(unit)
        elif unit.state is UnitState.WAITING:
            heapq.heappush(step.backoff, (unit.not_before, unit.ordinal))
    failed = [unit for unit in step.work if unit.state is UnitState.FAILED]
    step.first_failure = failed[0] if failed else None


def _halted(snap: Snapshot) -> int | None:
    """Find the step that stopped the run: one that failed by itself before those that were stopped with it."""
    stopping = [
        step
        for step in snap.steps
        if step.state is StepState.FAILED
        or (
            step.state is not StepState.COMPLETED
            and step.first_failure is not None
            and snap.halts(step, step.first_failure)
        )
    ]
    own = [step for step in stopping if step.reason != "stopped"]
    return (own or stopping)[0].index if stopping else None
