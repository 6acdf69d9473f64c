"""Drivers that pause for longer than their lease: what others have taken over is neither killed nor judged by them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.driver.desk import HOST, RUN, Desk, all_well, real_plan
from tests.store import builders as b

from interlock.decide.reopen import close_lost, go_on
from interlock.dispatch.base import Report, Started
from interlock.driver.drive import Reviver, World, drive
from interlock.driver.executor import Executor
from interlock.driver.lease import RENEW_MS, TERM_MS, acquire
from interlock.driver.loop import Stop
from interlock.driver.signals import Interrupts
from interlock.driver.trees import Lost
from interlock.errors import LeaseHeldError
from interlock.model.events import Process
from interlock.model.plan import Plan
from interlock.model.run import Lease
from interlock.model.states import Reason
from interlock.store.attempt_rows import TreeRow
from interlock.store.base import Loaded
from interlock.store.sqlite import SqliteStore
from interlock.testing.build import failed, ok, over, step
from interlock.testing.executors import HandExecutor

ORPHAN = Process(4_000_000, 7, "boot")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Give a run of one step without parameters."""
    made = Desk(tmp_path, real_plan(tmp_path, step("a")))
    yield made
    made.close()


class Pausing:
    """The journal of a driver that is stopped right after it has read a run."""

    def __init__(self, desk: Desk, meanwhile: Any) -> None:
        self._desk = desk
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._desk.store, name)

    def load(self, run_id: str) -> Loaded:
        loaded = self._desk.store.load(run_id)
        self._meanwhile()
        return loaded


class Successor:
    """A driver that goes on with the run of a dead one: it kills its children, and settles its worktrees."""

    def __init__(
        self, desk: Desk, meanwhile: Any = lambda: None, *, killing: Any = lambda: None, settling: Any = lambda: None
    ) -> None:
        self.killed: list[tuple[str, list[Process], int, int]] = []
        self.settled: list[str] = []
        self._killing, self._settling = killing, settling
        self._desk = desk
        desk.hand = HandExecutor(desk.clock, lambda _hand: all_well(desk))
        store: Any = Pausing(desk, meanwhile)
        self._world = World(
            root=desk.path.parent,
            store=store,
            clock=desk.clock,
            host=HOST,
            alive=lambda _process: False,
            end_leftovers=self._end_leftovers,
            executor=self._executor,
            settle_lost=self._settle_lost,
            map_concurrency=4,
            guard=lambda: contextlib.nullcontext(Interrupts()),
        )

    def _executor(self, _plan: Plan, _lease: Lease) -> Executor:
        return self._desk.hand

    def _end_leftovers(self, run_id: str, processes: Collection[Process], term: int) -> int:
        held = self._desk.store.read_lease(RUN)
        assert held is not None
        self.killed.append((run_id, [*processes], term, held.expires_boot_ms - self._desk.clock.boot_ms()))
        self._killing()
        return 0

    def _settle_lost(self, _plan: Plan, _run_id: str, rows: Iterable[TreeRow]) -> Lost:
        for row in rows:
            self.settled.append(row.unit_id)
            self._settling()
        return Lost()

    def drive(self) -> None:
        drive(self._world, RUN, [close_lost, go_on], observe=lambda _events, _snap: None)

    def revive(self) -> None:
        """Take the run up as one does a child run of another."""
        taken, dead = acquire(self._world.store, RUN, HOST, self._desk.clock, self._world.alive)
        Reviver(self._world, [taken], dead).revive(RUN, self._desk.restore())


def die_at_work(desk: Desk) -> None:
    """Let a driver die while its child runs."""

    def play(desk: Desk) -> Iterator[list[Report]]:
        [running] = desk.hand.running
        yield [Started(dispatch=running, process=ORPHAN)]
        raise InterruptedError

    with pytest.raises(InterruptedError):
        desk.drive(play)
    assert desk.attempts() == [("a:solo", 1, "started")]


def overtaken(desk: Desk) -> None:
    desk.clock.sleep(TERM_MS)
    desk.take_over()


def test_a_driver_that_was_overtaken_after_reading_kills_nobodys_children(desk: Desk) -> None:
    die_at_work(desk)

    late = Successor(desk, lambda: overtaken(desk))
    with pytest.raises(LeaseHeldError) as caught:
        late.drive()
    assert late.killed == []
    assert desk.hand.started == []
    assert desk.attempts() == [("a:solo", 1, "started")]
    assert str(caught.value) == "run run-1 was taken over by pid 1 on host at 2023-11-14 22:14:50Z"
    held = desk.store.read_lease(RUN)
    assert held is not None
    assert not held.released, "the lease is the other one's, and stays with him"


def test_a_driver_that_was_overtaken_after_reading_a_child_run_kills_nobodys_children(desk: Desk) -> None:
    die_at_work(desk)
    late = Successor(desk, lambda: overtaken(desk))
    with pytest.raises(LeaseHeldError):
        late.revive()
    assert late.killed == []


@pytest.fixture
def with_trees(tmp_path: Path) -> Iterator[Desk]:
    """Give a run whose driver died when the attempts of both its steps had worktrees."""
    plan = real_plan(tmp_path, *(step(name, needs=(), isolation="worktree") for name in "ab"))
    project = msgspec.structs.replace(plan.project, commit="c" * 40)
    made = Desk(tmp_path, msgspec.structs.replace(plan, project=project, repository=project.root))

    def play(_desk: Desk) -> Iterator[list[Report]]:
        raise InterruptedError
        yield

    with pytest.raises(InterruptedError):
        made.drive(play)
    assert [row.unit_id for row in made.store.worktrees(RUN)] == ["a:solo", "b:solo"]
    made.clock.sleep(TERM_MS)
    yield made
    made.close()


def test_a_driver_that_was_overtaken_while_it_killed_settles_nobodys_worktrees(with_trees: Desk) -> None:
    late = Successor(with_trees, killing=lambda: overtaken(with_trees))
    with pytest.raises(LeaseHeldError):
        late.drive()
    assert late.settled == []


def test_a_driver_that_was_overtaken_after_reading_a_child_run_settles_nobodys_worktrees(with_trees: Desk) -> None:
    late = Successor(with_trees, lambda: overtaken(with_trees))
    with pytest.raises(LeaseHeldError):
        late.revive()
    assert late.settled == []


def test_a_driver_that_is_overtaken_while_it_settles_worktrees_settles_no_more_of_them(with_trees: Desk) -> None:
    late = Successor(with_trees, settling=lambda: overtaken(with_trees))
    with pytest.raises(LeaseHeldError):
        late.drive()
    assert late.settled == ["a:solo"]


def test_a_driver_that_settles_worktrees_for_long_keeps_its_lease(with_trees: Desk) -> None:
    late = Successor(with_trees, settling=lambda: with_trees.clock.sleep(RENEW_MS))
    late.revive()
    assert late.settled == ["a:solo", "b:solo"]
    held = with_trees.store.read_lease(RUN)
    assert held is not None
    assert held.expires_boot_ms - with_trees.clock.boot_ms() == TERM_MS - RENEW_MS, "it renewed between the two"


def test_a_driver_that_pauses_while_it_renews_kills_nobodys_children_either(desk: Desk) -> None:
    die_at_work(desk)

    def once_it_renewed(moment: str) -> None:
        if moment == "after":
            desk.hook = lambda _moment: None
            overtaken(desk)

    def meanwhile() -> None:
        desk.hook = once_it_renewed

    late = Successor(desk, meanwhile)
    with pytest.raises(LeaseHeldError):
        late.drive()
    assert late.killed == []


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_that_another_one_drives_while_it_is_read_is_not_taken_for_a_run(desk: Desk, *, begun: bool) -> None:
    if begun:
        desk.store.commit(desk.lease, [b.started(1)])

    def meanwhile() -> None:
        desk.clock.sleep(TERM_MS)
        other = desk.take_over()
        with SqliteStore.open(desk.path) as store:
            if not begun:
                store.commit(other, [b.started(1)])
            assert not store.commit(other, [b.reserved(0), b.finished(0), b.completed(b'"ok"')]).lost

    late = Successor(desk, meanwhile)
    with pytest.raises(LeaseHeldError) as caught:
        late.drive()
    assert caught.value.code == "lease-lost"
    assert desk.hand.started == []
    assert desk.store.run(RUN).state == "active"


def test_a_driver_that_paused_and_was_not_overtaken_renews_before_it_kills(desk: Desk) -> None:
    die_at_work(desk)
    late = Successor(desk, lambda: desk.clock.sleep(TERM_MS))
    late.drive()
    assert late.killed == [(RUN, [ORPHAN], 2, TERM_MS)]
    assert desk.store.run(RUN).outcome == "ok"


def test_an_end_that_came_after_another_one_took_over_is_not_held_against_the_work(desk: Desk) -> None:

    def play(desk: Desk) -> Iterator[list[Report]]:
        # stopped while it waits: the other one kills what runs, and that is what is seen first on waking up
        overtaken(desk)
        yield desk.hand.end_all(failed(Reason.KILLED, error="ended by SIGKILL", answered=False))

    loop = desk.drive(play)
    assert (loop.stop, type(loop.error)) == (Stop.LEASE_LOST, LeaseHeldError)
    assert desk.attempts() == [("a:solo", 1, "reserved")], "open, for the one that drives now to close as lost"
    assert desk.units() == {"a:solo": "running"}


def test_a_good_end_that_came_after_another_one_took_over_is_kept(desks: Any) -> None:
    desk: Desk = desks(step("a", map=over("params.items")))

    def play(desk: Desk) -> Iterator[list[Report]]:
        overtaken(desk)
        first, *others = desk.hand.names()
        yield [
            desk.hand.end(first, ok("done")),
            *(desk.hand.end(name, failed(Reason.KILLED, answered=False)) for name in others),
        ]

    assert desk.drive(play).stop is Stop.LEASE_LOST
    assert sorted(state for _, _, state in desk.attempts()) == ["completed", "reserved", "reserved"]


def test_an_end_after_a_pause_in_which_nobody_took_over_counts(desk: Desk) -> None:

    def play(desk: Desk) -> Iterator[list[Report]]:
        desk.clock.sleep(TERM_MS)
        yield desk.hand.end_all(failed(Reason.KILLED, error="ended by SIGKILL", answered=False))

    assert desk.drive(play).stop is None
    assert desk.attempts() == [("a:solo", 1, "failed")]


def test_a_driver_that_pauses_while_it_renews_before_it_starts_work_starts_none(desk: Desk) -> None:
    commits = []

    def twice(moment: str) -> None:
        commits.append(moment)
        if moment == "after":
            desk.clock.sleep(TERM_MS)
        if commits.count("after") == len(("reserved", "renewed")):
            desk.hook = lambda _moment: None
            desk.take_over()

    desk.hook = twice
    loop = desk.drive(all_well)
    assert (loop.stop, desk.hand.started) == (Stop.LEASE_LOST, [])
    assert desk.attempts() == [("a:solo", 1, "reserved")]
