"""From a run's id to its end: lease, plan, leftovers, snapshot, loop, release. One path for every way to go on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from interlock.decide.now import Now
from interlock.decide.reopen import close_lost, divergences
from interlock.driver.clock import Clock
from interlock.driver.executor import Executor
from interlock.driver.family import Instead, Opening, Revived, taken_from
from interlock.driver.lease import Host, acquire, lost_error, renewal_due, renewed
from interlock.driver.load import restore
from interlock.driver.loop import Loop, Observer, Stop
from interlock.driver.lost_time import with_lost
from interlock.driver.signals import Interrupts
from interlock.driver.standing import refuse_elsewhere, standing
from interlock.driver.trees import Lost, lost_notices
from interlock.driver.typed import typed_from_here
from interlock.errors import InterlockError, StartAnewError, StoreError, UsageError
from interlock.model import events as ev
from interlock.model.events import Process
from interlock.model.plan import Plan
from interlock.model.run import Lease, Snapshot
from interlock.model.states import STEP_ENDED, RunState
from interlock.plan.freeze import thaw
from interlock.store.attempt_rows import TreeRow
from interlock.store.base import Loaded, RunRow, Store

_WITH_THE_WHOLE: Final = {"run": "go on with the whole", "resume": "reopen the whole", "abandon": "end the whole"}


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What the host gives a driver; the composition root fills it in."""

    root: Path
    """The project's, which paths of workflows are relative to."""
    store: Store
    clock: Clock
    host: Host
    alive: Callable[[Process], bool]
    end_leftovers: Callable[[str, Collection[Process], int], int]
    executor: Callable[[Plan, Lease], Executor]
    settle_lost: Callable[[Plan, str, Iterable[TreeRow]], Lost]
    """Settles the worktrees that dead drivers left."""
    map_concurrency: int
    guard: Callable[[], AbstractContextManager[Interrupts]]
    """Holds back what asks to stop, from before the lease is taken until it is released, and hands it to the loop."""
    examine: bool = True
    """Look at the project's directory and modules before something is dispatched; a replay dispatches nothing."""
    instead: Instead | None = None
    """Answers for units without their child runs; only a replay does."""


class Driven(msgspec.Struct, frozen=True):
    """How a drive ended."""

    snap: Snapshot
    stop: Stop | None


def drive(
    world: World,
    run_id: str,
    openings: Sequence[Opening],
    *,
    observe: Observer,
    lease: Lease | None = None,
    timeout_ms: int | None = None,
    settle_only: bool = False,
) -> Driven:
    """Take the lease (unless given) and drive the run. Raises InterlockError; the lease is released on every path.

    Raises KeyboardInterrupt when it is asked to stop twice before it has begun.
    """
    with world.guard() as interrupts:
        order = _Order(openings, observe, timeout_ms, settle_only, interrupts.attach)
        snap, stop = _held(world, run_id, order, lease)
    # also what came when the loop had ended, for who would go on
    return Driven(snap, stop or (Stop.INTERRUPT if interrupts.came else None))


class _Order(msgspec.Struct, frozen=True):
    """What `drive` is to do, and how."""

    openings: Sequence[Opening]
    observe: Observer
    timeout_ms: int | None
    settle_only: bool
    attach: Callable[[Loop], None]


def _held(world: World, run_id: str, order: _Order, lease: Lease | None) -> tuple[Snapshot, Stop | None]:
    dead: Lease | None = None
    if lease is None:
        lease, dead = _acquired(world, run_id)
    held = [lease]
    try:
        return _drive(world, held, dead, order)
    except StoreError as error:
        if not order.settle_only:
            # a file that is run again starts a new run
            error.hint += f"; then go on: interlock run {run_id}" if error.hint else f"go on: interlock run {run_id}"
        raise
    except StartAnewError as error:
        # of a child run too it is the whole that is started, and the project may be elsewhere than it was
        anew = f"start anew: interlock run {typed_from_here(world.root / world.store.run(run_id).workflow)}"
        error.hint += f", or {anew}" if error.hint else anew
        raise
    finally:
        with contextlib.suppress(InterlockError):
            world.store.release(held[0])


def _acquired(world: World, run_id: str) -> tuple[Lease, Lease]:
    refuse_child(world.store.run(run_id))
    return acquire(world.store, run_id, world.host, world.clock, world.alive)


def refuse_child(row: RunRow, verb: str = "run") -> None:
    """Raise UsageError for a run that only goes on, and ends, with another one."""
    if row.root is not None:
        raise UsageError(
            "child-run",
            f"run {row.id} is a unit of run {row.parent} and goes on with it",
            f"{_WITH_THE_WHOLE[verb]}: interlock {verb} {row.root}",
        )


def _drive(world: World, held: list[Lease], dead: Lease | None, order: _Order) -> tuple[Snapshot, Stop | None]:
    lease = held[0]
    reviver = Reviver(world, held, dead)
    plan, loaded = reviver.read(lease.run_id)
    if not order.settle_only and loaded.run.state != RunState.COMPLETED:
        refuse_elsewhere(world.root, plan, loaded)
    with _closing(world.executor(plan, lease)) as executor:
        if not order.settle_only:
            # before what takes its time: ending what others left, and reading a long run
            executor.prepare(plan, {plan.steps[row.step].id for row in loaded.steps if row.state in STEP_ENDED})
        revived = reviver.bring(plan, loaded, None)
        snap = revived.snap
        loop = Loop(
            snap=snap,
            lease=held[0],
            store=world.store,
            executor=executor,
            clock=world.clock,
            observe=order.observe,
            map_concurrency=world.map_concurrency,
            timeout_ms=order.timeout_ms,
            revive=reviver.revive,
            forked_from=revived.forked_from,
            examine=world.examine,
            instead=world.instead,
        )
        order.attach(loop)
        loop.drive(order.openings, first=revived.openings, settle_only=order.settle_only)
        held[0] = loop.lease
    if loop.error is not None:
        raise loop.error
    return snap, loop.stop


class Reviver:
    """Reads runs of one family as their last driver left them; what that left running is ended first."""

    def __init__(self, world: World, held: list[Lease], dead: Lease | None) -> None:
        self._world = world
        self._held = held
        self._dead = dead

    def read(self, run_id: str) -> tuple[Plan, Loaded]:
        """Read a run. Raises StoreError, PlanError and StartAnewError."""
        self._world.store.take_spool(run_id)
        loaded = self._world.store.load(run_id)
        plan = thaw(loaded.plan_json, loaded.run.plan_hash, run_id)
        check_params(plan, loaded.run.params_json, run_id)
        return plan, loaded

    def revive(self, run_id: str, above: Snapshot | None) -> Revived:
        """Return a child run. Raises what `read` raises."""
        return self.bring(*self.read(run_id), above)

    def bring(self, plan: Plan, loaded: Loaded, above: Snapshot | None) -> Revived:
        """Return a run that was read, and what is to be journaled before anything else."""
        world, run_id = self._world, loaded.run.id
        store = world.store
        processes = [row.process for row in loaded.open if row.process is not None]
        # what the original of a copy has running and lying about is not ours
        ours = standing(world.root, plan.project.root, plan.project.id) != "copied"
        # what is found by its marker is that of all runs of the family
        if ours and (processes or (above is None and loaded.dispatched)):
            self._prove()
            world.end_leftovers(self._held[0].run_id, processes, self._held[0].term)
        lost = Lost()
        if ours and plan.repository is not None and loaded.dispatched:
            lost = world.settle_lost(plan, run_id, self._while_ours(store.worktrees(run_id)))
        loaded, counting = with_lost(loaded, self._dead)
        snap, recorded = restore(plan, loaded, store.units(run_id), above)
        self._require_ours()

        def opening(snap: Snapshot, now: Now) -> list[ev.Event]:
            return [*close_lost(snap, now, lost.trees), *lost_notices(lost, now.at)]

        taking = taken_from(store, snap, loaded.run)
        return Revived(snap, (*counting, opening, partial(_compare, recorded), *taking), loaded.run.forked_from)

    def _prove(self) -> None:
        """Renew before touching what others left: after a pause it may be that of who took over."""
        world, held = self._world, self._held
        while True:
            lease = renewed(held[0], world.clock)
            if not world.store.renew(lease):
                raise lost_error(world.store, lease.run_id)
            held[0] = lease
            if world.clock.boot_ms() < lease.expires_boot_ms:
                return

    def _while_ours(self, rows: Sequence[TreeRow]) -> Iterator[TreeRow]:
        """Yield them, which are none of who takes over as long as the lease is renewed after they were read."""
        self._prove()
        for row in rows:
            if renewal_due(self._held[0], self._world.clock):
                self._prove()
            yield row

    def _require_ours(self) -> None:
        """Look whose the run is once it has been read: rows from before and after a take-over make no run."""
        ours, found = self._held[0], self._world.store.read_lease(self._held[0].run_id)
        if found is None or (found.holder, found.term) != (ours.holder, ours.term):
            raise lost_error(self._world.store, ours.run_id)


def _compare(recorded: dict[tuple[int, int], str], snap: Snapshot, now: Now) -> list[ev.Event]:
    return divergences(snap, recorded, now)


@contextlib.contextmanager
def _closing(executor: Executor) -> Iterator[Executor]:
    try:
        yield executor
    finally:
        executor.close()


def check_params(plan: Plan, params_json: bytes, run_id: str) -> None:
    """Refuse a run whose stored parameters are not those that its plan declares."""
    given = set(msgspec.json.decode(params_json))
    declared = {param.name for param in plan.params}
    required = {param.name for param in plan.params if param.required}
    if not given <= declared or not required <= given:
        raise StartAnewError("params-mismatch", f"the parameters stored for run {run_id} do not fit its plan")
