"""From a run's id to its end: lease, plan, leftovers, snapshot, loop, release. One path for every way to go on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager

import msgspec

from interlock.decide.now import Now
from interlock.decide.reopen import close_lost, divergences
from interlock.driver.clock import Clock
from interlock.driver.executor import Executor
from interlock.driver.lease import Host, acquire, held_error, renewed
from interlock.driver.load import restore
from interlock.driver.loop import Loop, Observer, Opening, Stop
from interlock.driver.trees import Lost, lost_notices
from interlock.errors import DispatchRefusedError, InterlockError
from interlock.model import events as ev
from interlock.model.events import Process
from interlock.model.plan import Plan
from interlock.model.run import Lease, Snapshot
from interlock.model.states import STEP_ENDED
from interlock.plan.freeze import thaw
from interlock.store.attempt_rows import TreeRow
from interlock.store.base import Loaded, RunRow, Store


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What the host gives a driver; the composition root fills it in."""

    store: Store
    clock: Clock
    host: Host
    alive: Callable[[Process], bool]
    end_leftovers: Callable[[str, Collection[Process], str | None], int]
    executor: Callable[[Plan, Lease], Executor]
    settle_lost: Callable[[Plan, str, Sequence[TreeRow]], Lost]
    """Settles the worktrees that dead drivers left."""
    map_concurrency: int
    guard: Callable[[Loop], AbstractContextManager[None]]
    """Lets signals reach the loop while it drives."""
    examine: bool = True
    """Look at the project's directory and modules before something is dispatched; a replay dispatches nothing."""


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
    """Take the lease (unless given) and drive the run. Raises InterlockError; the lease is released on every path."""
    lease = lease or acquire(world.store, run_id, world.host, world.clock, world.alive)
    held = [lease]
    try:
        return _drive(world, held, openings, observe, timeout_ms, settle_only=settle_only)
    finally:
        with contextlib.suppress(InterlockError):
            world.store.release(held[0])


def _drive(
    world: World,
    held: list[Lease],
    openings: Sequence[Opening],
    observe: Observer,
    timeout_ms: int | None,
    *,
    settle_only: bool,
) -> Driven:
    store, lease = world.store, held[0]
    store.take_spool(lease.run_id)
    loaded = store.load(lease.run_id)
    plan = thaw(loaded.plan_json, loaded.run.plan_hash, lease.run_id)
    check_params(plan, loaded.run.params_json, lease.run_id)
    with _closing(world.executor(plan, lease)) as executor:
        if not settle_only:
            # before what takes its time: ending what others left, and reading a long run
            executor.prepare(plan, {plan.steps[row.step].id for row in loaded.steps if row.state in STEP_ENDED})
        snap, own = _revive(world, held, plan, loaded)
        loop = Loop(
            snap=snap,
            lease=held[0],
            store=store,
            executor=executor,
            clock=world.clock,
            observe=observe,
            map_concurrency=world.map_concurrency,
            timeout_ms=timeout_ms,
            examine=world.examine,
        )
        with world.guard(loop):
            loop.drive([*own, *openings], settle_only=settle_only)
        held[0] = loop.lease
    if loop.error is not None:
        raise loop.error
    return Driven(snap, loop.stop)


def _revive(world: World, held: list[Lease], plan: Plan, loaded: Loaded) -> tuple[Snapshot, list[Opening]]:
    """Return the run as its last driver left it, and what is to be journaled first; what that left running is ended."""
    store, run = world.store, loaded.run
    if loaded.dispatched:
        _prove(world, held)
        world.end_leftovers(run.id, [row.process for row in loaded.open if row.process is not None], held[0].holder)
    lost = Lost()
    if plan.repository is not None and loaded.dispatched:
        lost = world.settle_lost(plan, run.id, store.worktrees(run.id))
    snap, recorded = restore(plan, loaded, store.units(run.id))
    return snap, [_close(lost), _compare(recorded), *_taking(store, snap, run)]


def _taking(store: Store, snap: Snapshot, row: RunRow) -> list[Opening]:
    if row.forked_from is None:
        return []
    from interlock.driver.forking import fork_openings  # noqa: PLC0415 - most runs are no forks

    return fork_openings(store, snap, row, row.forked_from)


def _prove(world: World, held: list[Lease]) -> None:
    """Renew before killing what others left: after a pause these may be the children of who took over."""
    lease = renewed(held[0], world.clock)
    if not world.store.renew(lease):
        raise held_error(lease.run_id, world.store.read_lease(lease.run_id))
    held[0] = lease


def _close(lost: Lost) -> Opening:
    def opening(snap: Snapshot, now: Now) -> list[ev.Event]:
        return [*close_lost(snap, now, lost.trees), *lost_notices(lost, now.at)]

    return opening


def _compare(recorded: dict[tuple[int, int], str]) -> Opening:
    def opening(snap: Snapshot, now: Now) -> list[ev.Event]:
        return divergences(snap, recorded, now)

    return opening


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
        raise DispatchRefusedError(
            "params-mismatch",
            f"the parameters stored for run {run_id} do not fit its plan",
            f"start anew: interlock run {plan.source}",
        )
