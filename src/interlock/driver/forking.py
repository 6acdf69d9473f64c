"""A new run from an old one: its birth, what it takes over, and the same told before anything starts.

Guarantees: the fork's journal names the old run and the step from which hashes decide, so a crash at any moment
leaves a fork that `run` goes on with; an explanation writes nothing; a step is taken as it is only where the old
run completed or skipped it; an external effect that may have taken place is answered for before a fork begins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from interlock.decide import forking, reuse
from interlock.decide.estimate import Estimate, estimate, for_a_person
from interlock.decide.forking import ForkStep, ForkUnit
from interlock.decide.now import Now
from interlock.decide.work import base_id
from interlock.driver.birth import new_run
from interlock.driver.estimating import history_of
from interlock.driver.family import Opening
from interlock.driver.load import restore
from interlock.driver.params import NO_PARAMS, ParamsInput, explaining_recorded, read_params
from interlock.driver.trees import gone_commits, with_uncommitted
from interlock.errors import StartAnewError, StoreError, UsageError
from interlock.model import events as ev
from interlock.model.plan import Child, Plan
from interlock.model.reuse import Reuse
from interlock.model.run import RunInfo, Snapshot, Unit
from interlock.model.states import RUN_ENDED, RunState, StepState, UnitState
from interlock.plan.freeze import freeze, thaw
from interlock.store.base import RunRow, Store, UnitRow
from interlock.store.births import NewRun

Amount = TypeVar("Amount", int, float)
_OPEN: Final = frozenset({UnitState.RUNNING, UnitState.UNKNOWN})
_TAKEN: Final = frozenset({StepState.COMPLETED, StepState.SKIPPED})


class ForkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What to fork: the old run, another workflow file, the step before which all is taken as it is, parameters."""

    run: str
    workflow: Path | None = None
    from_step: str | None = None
    params: ParamsInput = NO_PARAMS


class Old:
    """The run that a fork is made from, as it stands now. It may still be driven: what has completed is taken."""

    def __init__(self, store: Store, run_id: str) -> None:
        with store.view():
            loaded = store.load(run_id)
            self._rows: dict[tuple[int, int], UnitRow] = {(row.step, row.ordinal): row for row in store.units(run_id)}
        plan = thaw(loaded.plan_json, loaded.run.plan_hash, run_id)
        self.snap, _ = restore(plan, loaded, self._rows.values())
        self.params_json = loaded.run.params_json

    @cached_property
    def gone(self) -> frozenset[str]:
        """The commits that its units left in worktrees and that git does not hold any more: they were dropped."""
        units = (unit for step in self.snap.steps for unit in step.units)
        left = {unit.left for unit in units if unit.left is not None and unit.left != unit.base}
        return gone_commits(self.snap.plan.project.root, left)

    def index(self) -> Reuse:
        """Index what may be taken over: a result whose files are gone is none."""
        units = ((step.id, unit) for step in self.snap.steps for unit in step.units)
        return reuse.index(
            self.snap, (self.done(step_id, unit) for step_id, unit in units if unit.left not in self.gone)
        )

    def done(self, step_id: str, unit: Unit) -> reuse.Done:
        """Say on what input and where a unit was really done: what the old run took over is its origin's still."""
        row = self._rows[self.snap.by_id[step_id].index, unit.ordinal]
        origin = row.reused or ev.Origin(self.snap.run.id, unit.id, unit.attempt)
        return reuse.Done(step_id, unit, row.input_hash.removeprefix(forking.TAKEN), origin)


def workflow_of(order: ForkOrder, plan_source: str, root: Path) -> Path:
    """Return the file to compile: the one that was named, else that of the old run as it is now."""
    path = order.workflow or root / plan_source
    if order.workflow is None and not path.is_file():
        raise UsageError(
            "workflow-gone",
            f"the workflow of run {order.run} is gone: {plan_source}",
            f"name the file to use: interlock fork {order.run} --workflow FILE",
        )
    return path


def params_of(order: ForkOrder, plan: Plan, old_json: bytes) -> ParamsInput:
    """Return the old run's parameters, as far as the plan still declares them, under those that were given."""
    declared = {param.name for param in plan.params}
    kept = {name: value for name, value in msgspec.json.decode(old_json).items() if name in declared}
    given = {name for name, _ in order.params.cli} | set(read_params(order.params.file, plan.params) or {})
    values = {name: value for name, value in kept.items() if name not in given}
    return msgspec.structs.replace(order.params, values={**values, **(order.params.values or {})})


def first_step(order: ForkOrder, plan: Plan, old: Snapshot) -> int:
    """Return the index of the step from which hashes decide. Raises UsageError when a step can't be taken as it is."""
    if order.from_step is None:
        return 0
    ids = [step.id for step in plan.steps]
    if order.from_step not in ids:
        raise UsageError("unknown-step", f"the workflow has no step '{order.from_step}'", f"it has: {', '.join(ids)}")
    start = ids.index(order.from_step)
    for spec in plan.steps[:start]:
        before = old.by_id.get(spec.id)
        if before is None or before.state not in _TAKEN:
            state = "has no such step" if before is None else f"left it {before.state}"
        elif (old.plan.step(spec.id).route is None) is not (spec.route is None):
            state = "has it as another kind of step (a route, or none)"
        else:
            continue
        raise UsageError(
            "step-not-taken",
            f"step '{spec.id}' can't be taken as it is: run {order.run} {state}",
            f"begin at it: interlock fork {order.run} --from {spec.id}",
        )
    return start


def refuse_open_effects(store: Store, old: Snapshot, steps: Collection[str]) -> None:
    """Raise UsageError when work of those steps, or below them, may have taken effect and nobody has said so yet."""
    for step in old.steps:
        if step.id in steps and old.plan.steps[step.index].effects == "external":
            for unit in step.units:
                if unit.kind == "work" and unit.state in _OPEN:
                    raise _effect_open(store.run(old.run.id), unit)
    for row in store.children(old.run.id):
        if row.state != RunState.COMPLETED and (row.parent_unit or "").partition(":")[0] in steps:
            below = Old(store, row.id).snap
            refuse_open_effects(store, below, {step.id for step in below.steps})


def _effect_open(row: RunRow, unit: Unit) -> UsageError:
    if row.state == RunState.ABANDONED or (row.root and row.state in RUN_ENDED):
        todo = f"go on with that run first: interlock resume {row.root or row.id}"
    elif unit.state is UnitState.RUNNING:
        whole = row.root or row.id
        todo = f"let that run come to its end: interlock run {whole} (while it is driven: interlock events {whole} --follow)"
    else:
        todo = f"say it first: interlock resolve {row.id} {unit.id} --done (or --rerun, if it did not take place)"
    text = f"it is not known whether {unit.id} of run {row.id} took effect, and a fork might do it again"
    return UsageError("effect-open", text, todo)


def fork_openings(store: Store, snap: Snapshot, row: RunRow | NewRun, source: str) -> list[Opening]:
    """Give a fork what it may take over of the run `source`, and return what takes the steps that are taken as they are."""
    try:
        old = Old(store, source)
    except StoreError as error:
        if error.code != "run-not-found":
            raise
        return [_without(snap, row, source)]
    snap.reuse = old.index()
    return [_take(old, row.fork_step)]


def _without(snap: Snapshot, row: RunRow | NewRun, old: str) -> Opening:
    if any(step.state is StepState.PENDING for step in snap.steps[: row.fork_step]):
        raise StartAnewError("fork-source-gone", f"run {row.id} takes steps from run {old}, which is gone")
    code, text = f"fork:{old}", f"run {old}, from which this one was made, is gone: nothing more is taken over"
    told = code in snap.noticed
    return lambda _snap, now: [] if told else [ev.Notice(at=now.at, code=code, text=text)]


def _take(old: Old, start: int) -> Opening:
    def opening(snap: Snapshot, now: Now) -> Sequence[ev.Event]:
        return [
            event
            for step in snap.steps[:start]
            if step.state is StepState.PENDING
            for event in forking.as_it_is(old.snap, snap, step, old.done, now.at)
        ]

    return opening


class Draft(msgspec.Struct, frozen=True):
    """A fork that is known to be possible: plan, parameters, the old run, and the step from which hashes decide."""

    plan: Plan
    values: dict[str, Any]
    params_json: bytes
    old: Old
    start: int


def draft(
    order: ForkOrder,
    store: Store,
    root: Path,
    compiled: Callable[[Path], Plan],
    coerced: Callable[[Plan, ParamsInput], tuple[dict[str, Any], bytes]],
) -> Draft:
    """Look at the old run, compile the workflow, and check that it can be forked as ordered."""
    old = Old(store, order.run)
    plan = compiled(workflow_of(order, old.snap.plan.source, root))
    with explaining_recorded(order.run):
        values, params_json = coerced(plan, params_of(order, plan, old.params_json))
    again = {step.id for step in plan.steps if step.effects == "external" or isinstance(step.target, Child)}
    refuse_open_effects(store, old.snap, again)
    return Draft(plan, values, params_json, old, first_step(order, plan, old.snap))


def new_fork(fork: Draft, plan: Plan, run_id: str, at: int) -> NewRun:
    """Return the rows of a fork with that plan, the draft's but for what was still uncommitted then.

    The gates of steps taken as they are passed in the old run, and aren't asked here.
    """
    new = new_run(plan, run_id, fork.params_json, at, None)
    taken = [msgspec.structs.replace(step, stages=(), each=False) for step in new.steps[: fork.start]]
    steps = (*taken, *new.steps[fork.start :])
    return msgspec.structs.replace(new, forked_from=fork.old.snap.run.id, fork_step=fork.start, steps=steps)


class Stake(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and dollars. None is unknown, not zero; what asks no engine uses neither."""

    tokens: int | None = 0
    cost_usd: float | None = 0.0


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """A fork before it starts, with what each known unit's attempts used in the run where it was done."""

    run: str
    plan_hash: str
    steps: tuple[ForkStep, ...]
    stakes: dict[str, Stake]
    """By unit id: what its attempts used where it was done."""
    beside: Mapping[str, Sequence[tuple[str, Stake]]]
    """By step id: what loops and judges used that are no units of their own, each `reuse` or `run`."""
    estimate: Estimate
    """What is left to run may use, by what the project's engines were seen to use."""


def explain(store: Store, fork: Draft, at: int) -> Explained:
    """Play the fork in memory as far as nothing has to be dispatched, and say what became of each unit."""
    old, now = fork.old, Now(at=at)
    snap = Snapshot(with_uncommitted(fork.plan, None), RunInfo(id="fork", params=fork.values))
    snap.reuse = old.index()
    snap.apply_all(_take(old, fork.start)(snap, now))
    forking.play(snap, now)
    steps = forking.explain(old.snap, snap, old.gone)
    purse = _Purse(store)
    stakes = {unit.id: purse.stake(unit) for step in steps for unit in step.units or ()}
    beside = {step.id: tuple((unit.action, purse.stake(unit)) for unit in step.beside) for step in steps if step.beside}
    left = {step.id: _left(fork.plan, step) for step in steps if step.action not in ("reuse", "skip")}
    unsure = {
        step.id: f"whether '{step.id}' runs or is taken over is not known yet" for step in steps if step.units is None
    }
    unsure |= {step.id: for_a_person(step.id) for step in steps if step.action == "ask"}
    return Explained(
        run=old.snap.run.id,
        plan_hash=freeze(fork.plan)[1],
        steps=steps,
        stakes=stakes,
        beside=beside,
        estimate=estimate(fork.plan, history_of(fork.plan, store), left, unsure),
    )


def _left(plan: Plan, step: ForkStep) -> int | None:
    """Return how many units are to run at the most, None where that is not known."""
    if step.units is None:
        return None if plan.step(step.id).map is not None else 1
    return sum(unit.action == "run" for unit in step.units)


class _Purse:
    """What attempts used, run by run; a run that is gone tells nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._places: dict[str, dict[str, tuple[int, int]]] = {}

    def stake(self, unit: ForkUnit) -> Stake:
        origin = unit.origin or unit.old
        place = None if origin is None else self._of(origin.run).get(origin.unit)
        if origin is None or place is None:
            return Stake(tokens=None, cost_usd=None)
        child = next((r.id for r in self._store.children(origin.run) if r.parent_unit == base_id(origin.unit)), None)
        if child is not None:
            spent = self._store.spent(child)
            return Stake(tokens=spent.tokens, cost_usd=None if spent.unpriced else spent.cost_usd)
        asked = [one for one in self._store.attempts(origin.run, *place) if one.engine is not None]
        tokens = [
            None if one.usage is None else (one.usage.input_tokens or 0) + (one.usage.output_tokens or 0)
            for one in asked
        ]
        costs = [None if one.usage is None else one.usage.cost_usd for one in asked]
        return Stake(tokens=in_all(tokens), cost_usd=in_all(costs))

    def _of(self, run_id: str) -> dict[str, tuple[int, int]]:
        if run_id not in self._places:
            try:
                self._places[run_id] = {row.id: (row.step, row.ordinal) for row in self._store.units(run_id)}
            except StoreError:
                self._places[run_id] = {}
        return self._places[run_id]


def in_all(values: Sequence[Amount | None]) -> Amount | None:
    """Add up; what is unknown in one is unknown in the sum."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
