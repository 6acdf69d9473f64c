"""A run in memory: `Snapshot`, all that a decision may look at, and `apply`, the only way it changes.

Guarantee: `apply` costs O(1) per unit touched, so the loop's cost per event does not grow with the run; what
a decision asks for (ready units, due retries, counts) is kept ready, never searched for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from interlock.model import canon
from interlock.model import events as ev
from interlock.model.lease import Lease
from interlock.model.plan import Child, Plan, Prompt
from interlock.model.reuse import Reuse
from interlock.model.states import RUN_ENDED, Reason, RunState, StepState, UnitState
from interlock.model.unit import Held, Step, Unit, drop_stale, leave_ready, move_unit, note_tree, queue

_SEEN: Final = 100
"""Answers of an engine that a reservation looks back on."""
_NOTHING: Final = ev.Usage(input_tokens=0, output_tokens=0, cost_usd=0.0, cached_tokens=0, reasoning_tokens=0)


class RunInfo(msgspec.Struct, kw_only=True):
    """The run's own row."""

    id: str
    state: RunState = RunState.ACTIVE
    reason: str | None = None
    detail: str = ""
    outcome: str | None = None
    wait_until: int | None = None
    created_at: int = 0
    driven_ms: int = 0
    params: dict[str, Any]


class Snapshot:
    """A run's plan-shaped state. Built by replaying rows or events through `apply`; read by `decide`.

    What is used and in flight is counted with all runs below it: a child counts into those `above` too.
    """

    def __init__(self, plan: Plan, run: RunInfo, above: Snapshot | None = None) -> None:
        self.plan = plan
        self.run = run
        self.above = above
        self.levels: tuple[Snapshot, ...] = (self, *(above.levels if above is not None else ()))
        """This run and those that it is a child of, up to the first."""
        self.below: list[Snapshot] = []
        """The child runs that are under way."""
        self.place: tuple[Step, Unit] | None = None
        """Of a child: the step and unit of the run above that it is."""
        self.steps = [Step(i, s.id, child=isinstance(s.target, Child)) for i, s in enumerate(plan.steps)]
        self.by_id = {s.id: s for s in self.steps}
        self.dispatched = 0
        self.tokens = 0
        self.cost_usd = 0.0
        self.raised: dict[str, float] = {}
        self.accepted: dict[str, str] = {}
        self.noticed: set[str] = set()
        self.parked: dict[str, int | None] = {}
        """Engines without quota, and until when (None: unknown)."""
        self.reserved_tokens = 0
        """Held back for prompts in flight."""
        self.usage_seen: dict[str, list[int]] = {}
        """Tokens of each engine's latest answers."""
        self.cost_seen: dict[str, list[float]] = {}
        """Dollars of each engine's latest answers, as far as they are known."""
        self.sessions: dict[str, ev.Usage] = {}
        """What agents' sessions consumed so far, as far as it is known."""
        self.granted: dict[int, int] = {}
        """Loops granted beyond the plan, by step."""
        self.running = 0
        """Open attempts of its own, child runs among them."""
        self.held = 0
        """Those of them whose child run cannot move by itself."""
        self.busy = 0
        """Open attempts that take a place: those of child runs, not the runs themselves."""
        self.halted: int | None = None
        """Index of the step whose final failure stops all new work."""
        self.open = list(range(len(self.steps)))
        """Indices of steps that have not ended, in plan order."""
        self.reuse: Reuse | None = None
        """Of a fork: what it may take over from the run that it was made from."""

    def apply(self, event: ev.Event) -> None:
        """Make the change that `event` names."""
        _APPLY[type(event)](self, event)

    def apply_all(self, events: Iterable[ev.Event]) -> None:
        """Apply in order."""
        for event in events:
            _APPLY[type(event)](self, event)

    def hold(self, step: Step, unit: Unit, held: Held) -> None:
        """Take note that the unit's child run cannot move by itself."""
        self.held += unit.ordinal not in step.held
        step.held[unit.ordinal] = held

    def release(self, step: Step, unit: Unit) -> None:
        """Take note that the unit's child run moves, or is over."""
        if step.held.pop(unit.ordinal, None) is not None:
            self.held -= 1

    def can_loop(self, step: Step) -> bool:
        """Tell whether the step may run its units once more with feedback; only to a prompt can anything be said."""
        spec = self.plan.steps[step.index]
        if spec.gate is None or not isinstance(spec.target, Prompt):
            return False
        return step.loop < spec.gate.max_loops + self.granted.get(step.index, 0)

    def halts(self, step: Step, failed: Unit) -> bool:
        """Tell whether the step's failed unit stops the run: not under `continue`, nor where a loop may mend it."""
        spec = self.plan.steps[step.index]
        misfits = spec.map is None and failed.reason == Reason.VALIDATION_ERROR
        return spec.on_error == "fail" and not (misfits and self.can_loop(step))


def _step_started(snap: Snapshot, event: ev.StepStarted) -> None:
    step = snap.steps[event.step]
    step.state, step.reason, step.detail = StepState.RUNNING, None, ""
    step.round, step.loop = event.round, event.loop
    step.asked, step.asking = [], 0
    step.first_failure = None
    if event.step not in snap.open:
        snap.open = sorted([*snap.open, event.step])
    _forget_halt(snap, step)
    fresh = [Unit(new, "work", event.round, event.loop) for new in event.units]
    step.units.extend(fresh)
    _replace_work(step, fresh)
    step.ready = deque(unit for unit in step.work if unit.state is UnitState.PENDING)


def _forget_halt(snap: Snapshot, reopened: Step) -> None:
    """A step that is reopened stops the run no longer; another that failed still does."""
    if snap.halted == reopened.index:
        snap.halted = next((step.index for step in snap.steps if step.state is StepState.FAILED), None)


def _replace_work(step: Step, fresh: list[Unit]) -> None:
    """Put the new round's units in the place of those they stand for."""
    if not step.work:
        step.work = fresh
    else:
        place = {unit.index: i for i, unit in enumerate(step.work)}
        for unit in fresh:
            step.work[place[unit.index]] = unit
    step.counts = dict.fromkeys(UnitState, 0)
    for unit in step.work:
        step.counts[unit.state] += 1


def _units_added(snap: Snapshot, event: ev.UnitsAdded) -> None:
    step = snap.steps[event.step]
    step.state = event.state
    fresh = [Unit(new, event.kind, event.round, event.loop) for new in event.units]
    step.units.extend(fresh)
    step.asked.extend(fresh)
    if event.kind != "approval":
        open_units = [unit for unit in fresh if unit.state is UnitState.PENDING]
        step.ready.extend(open_units)
        step.asking += len(open_units)


def _reserved(snap: Snapshot, event: ev.AttemptReserved) -> None:
    step = snap.steps[event.step]
    unit = step.units[event.unit]
    unit.attempt = event.number
    unit.dispatch = event.dispatch
    if unit.state is UnitState.WAITING:
        move_unit(step, unit, UnitState.RUNNING)
        drop_stale(step)
    else:
        move_unit(step, unit, UnitState.RUNNING)
        leave_ready(step, unit)
    step.running[event.unit] = unit
    snap.running += 1
    if not step.child or unit.kind != "work":
        for level in snap.levels:
            level.busy += 1
            if unit.kind == "work":
                level.dispatched += 1
    if event.worktree is not None:
        unit.worktree = event.worktree
    if event.reserve_tokens:
        unit.reserve_tokens = event.reserve_tokens
        for level in snap.levels:
            level.reserved_tokens += event.reserve_tokens


def _started(_snap: Snapshot, _event: ev.AttemptStarted) -> None:
    """A process is of no concern to decisions."""


def _finished(snap: Snapshot, event: ev.AttemptFinished) -> None:
    step = snap.steps[event.step]
    unit = step.units[event.unit]
    if step.running.pop(event.unit, None) is not None:
        snap.running -= 1
        if not step.child or unit.kind != "work":
            for level in snap.levels:
                level.busy -= 1
        else:
            snap.release(step, unit)
    unit.dispatch = None
    unit.retries = event.retries
    unit.reason = event.reason
    unit.error = event.error
    unit.result = event.result
    unit.verdict = event.verdict
    unit.asks = event.asks
    if event.answered is not None and event.answered.session is not None:
        _note_session(snap, unit, event.answered.session, event.usage)
    if event.tree is not None:
        note_tree(step, unit, event.tree)
    move_unit(step, unit, event.unit_state)
    queue(step, unit, event.not_before)
    if unit.reserve_tokens:
        for level in snap.levels:
            level.reserved_tokens -= unit.reserve_tokens
        unit.reserve_tokens = 0
    if event.usage is not None:
        _charge(snap, event.usage, event.engine)
    if event.unit_state is UnitState.FAILED and unit.kind == "work":
        _note_failure(snap, step, unit)


def _note_session(snap: Snapshot, unit: Unit, session: str, usage: ev.Usage | None) -> None:
    before = snap.sessions.pop(session, None) if unit.session == session else _NOTHING
    if before is not None and usage is not None and not usage.estimated:
        snap.sessions[session] = _sum(before, usage)
    unit.session = session


def _sum(first: ev.Usage, second: ev.Usage) -> ev.Usage:
    """Add usages; what is unknown in one is unknown in the sum."""
    sums: dict[str, Any] = {}
    for name in ("input_tokens", "output_tokens", "cost_usd", "cached_tokens", "reasoning_tokens"):
        one, other = getattr(first, name), getattr(second, name)
        sums[name] = None if one is None or other is None else one + other
    return ev.Usage(**sums)


def _charge(snap: Snapshot, usage: ev.Usage, engine: str | None) -> None:
    tokens = (usage.input_tokens or 0) + (usage.output_tokens or 0)
    for level in snap.levels:
        level.tokens += tokens
        level.cost_usd += usage.cost_usd or 0.0
    if engine is None:
        return
    if not usage.estimated and (usage.input_tokens is not None or usage.output_tokens is not None):
        seen = snap.usage_seen.setdefault(engine, [])
        seen.append(tokens)
        del seen[:-_SEEN]
    if usage.cost_usd is not None:
        # told, even where the tokens had to be estimated
        paid = snap.cost_seen.setdefault(engine, [])
        paid.append(usage.cost_usd)
        del paid[:-_SEEN]


def _note_failure(snap: Snapshot, step: Step, unit: Unit) -> None:
    if step.first_failure is None:
        step.first_failure = unit
    if snap.halted is None and snap.halts(step, unit):
        snap.halted = step.index


def _units_stopped(snap: Snapshot, event: ev.UnitsStopped) -> None:
    step = snap.steps[event.step]
    for unit in (*step.work, *step.asked):
        if unit.state is UnitState.PENDING:
            unit.reason = event.reason
            move_unit(step, unit, UnitState.NOT_RUN)
        elif unit.state is UnitState.WAITING:
            move_unit(step, unit, UnitState.FAILED)
    step.ready.clear()
    step.backoff.clear()


def _unit_moved(snap: Snapshot, event: ev.UnitMoved) -> None:
    step = snap.steps[event.step]
    unit = step.units[event.unit]
    unit.reason = event.reason
    unit.result = event.result
    unit.error = unit.error if event.error is None else event.error
    if unit.kind != "work":
        # a question that is put again has its own re-ask and retries
        unit.asks = unit.retries = 0
    move_unit(step, unit, event.state)
    queue(step, unit, None)
    if event.state is UnitState.FAILED and unit.kind == "work":
        _note_failure(snap, step, unit)


def _step_moved(snap: Snapshot, event: ev.StepMoved) -> None:
    step = snap.steps[event.step]
    step.state = event.state
    step.reason, step.detail = event.reason, event.detail
    if event.state is StepState.COMPLETED:
        step.artifact, step.artifact_hash, step.route = event.artifact, event.artifact_hash, event.route
    if step.ended:
        if event.step in snap.open:
            snap.open.remove(event.step)
        if event.state is StepState.FAILED and snap.halted is None:
            snap.halted = event.step
        return
    if step.first_failure is None or not snap.halts(step, step.first_failure):
        _forget_halt(snap, step)
    if event.step not in snap.open:
        snap.open = sorted([*snap.open, event.step])


def _run_moved(snap: Snapshot, event: ev.RunMoved) -> None:
    run = snap.run
    if run.state in RUN_ENDED and event.state is RunState.ACTIVE:
        snap.halted = None
    run.state, run.reason, run.detail = event.state, event.reason, event.detail
    run.outcome, run.wait_until = event.outcome, event.wait_until
    run.driven_ms = event.driven_ms


def _budget_raised(snap: Snapshot, event: ev.BudgetRaised) -> None:
    snap.raised[event.name] = event.value


def _engine_parked(snap: Snapshot, event: ev.EngineParked) -> None:
    snap.parked[event.engine] = event.until


def _approved(snap: Snapshot, event: ev.Approved) -> None:
    step = snap.steps[event.step]
    unit = step.units[event.unit]
    unit.verdict = event.verdict
    unit.result = canon.dumps({"feedback": event.note, "verdict": event.verdict})
    move_unit(step, unit, UnitState.COMPLETED)


def _loops_granted(snap: Snapshot, event: ev.LoopsGranted) -> None:
    snap.granted[event.step] = snap.granted.get(event.step, 0) + event.more


def _modules_accepted(snap: Snapshot, event: ev.ModulesAccepted) -> None:
    snap.accepted.update(event.hashes)


def _notice(snap: Snapshot, event: ev.Notice) -> None:
    snap.noticed.add(event.code)


def _nothing(_snap: Snapshot, _event: object) -> None:
    """Events that a decision never looks at."""


_APPLY: Final[dict[type, Callable[[Snapshot, Any], None]]] = {
    ev.StepStarted: _step_started,
    ev.UnitsAdded: _units_added,
    ev.AttemptReserved: _reserved,
    ev.AttemptStarted: _started,
    ev.AttemptFinished: _finished,
    ev.UnitsStopped: _units_stopped,
    ev.UnitMoved: _unit_moved,
    ev.StepMoved: _step_moved,
    ev.RunMoved: _run_moved,
    ev.BudgetRaised: _budget_raised,
    ev.EngineParked: _engine_parked,
    ev.Approved: _approved,
    ev.LoopsGranted: _loops_granted,
    ev.ModulesAccepted: _modules_accepted,
    ev.RequestApplied: _nothing,
    ev.Notice: _notice,
    ev.EnvResolved: _nothing,
    ev.Divergence: _nothing,
}

__all__ = ["Lease", "Reason", "RunInfo", "Snapshot", "Step", "Unit", "move_unit"]
