from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.driver.desk import RUN, Desk, all_well

from interlock.decide.reopen import close_lost
from interlock.dispatch.base import Report
from interlock.driver.loop import Stop
from interlock.errors import LeaseHeldError, StoreError
from interlock.model import events as ev
from interlock.model.plan import Budget
from interlock.testing.build import aborted, ok, over, step

MAP = step("m", map=over("params.items", concurrency=2))


# the lease


def test_the_lease_is_renewed_while_work_is_under_way(desks: Any) -> None:
    desk: Desk = desks(step("a"), budget=Budget(max_duration_ms=10**9))

    def play(desk: Desk) -> Iterator[list[Report]]:
        for _ in range(6):
            desk.clock.advance(20_000)
            yield []
        yield desk.hand.end_all(ok())

    desk.drive(play)
    lease = desk.store.read_lease(RUN)
    assert lease is not None
    assert lease.expires_boot_ms - desk.clock.boot_ms() == 90_000
    assert lease.renewed_ms == desk.clock.wall_ms()
    assert desk.history().count("run_moved") == 7


def test_the_lease_is_renewed_at_once_by_a_driver_that_took_long_to_take_the_run_over(desks: Any) -> None:
    desk: Desk = desks(step("a"))

    def play(desk: Desk) -> Iterator[list[Report]]:
        lease = desk.store.read_lease(RUN)
        assert lease is not None
        assert lease.expires_boot_ms - desk.clock.boot_ms() == 90_000
        yield desk.hand.end_all(ok())

    desk.clock.sleep(80_000)
    assert desk.drive(play).stop is None


def test_driven_time_is_journaled_at_each_renewal_where_it_is_limited(desks: Any) -> None:
    desk: Desk = desks(step("a"), budget=Budget(max_duration_ms=10**9))

    def play(desk: Desk) -> Iterator[list[Report]]:
        desk.clock.advance(20_000)
        yield []
        assert desk.store.run(RUN).driven_ms == 20_000
        desk.clock.sleep(50_000)
        yield desk.hand.end_all(ok())

    desk.drive(play)
    assert desk.store.run(RUN).driven_ms == 20_000


def test_a_driver_that_lost_its_lease_writes_the_ends_of_its_attempts_and_nothing_else(desks: Any) -> None:
    desk: Desk = desks(MAP)

    def play(desk: Desk) -> Iterator[list[Report]]:
        desk.take_over()
        yield [desk.hand.end(desk.hand.names()[0], ok("mine"))]
        assert desk.hand.cancelled == [0.0]
        yield desk.hand.end_all(aborted())

    loop = desk.drive(play)
    assert loop.stop is Stop.LEASE_LOST
    assert isinstance(loop.error, LeaseHeldError)
    assert len(desk.hand.started) == 2
    assert sorted(row[2] for row in desk.attempts()) == ["aborted", "completed"]
    assert desk.store.steps(RUN)[0].state == "running"


def test_a_driver_that_lost_its_lease_does_not_close_the_attempts_of_the_one_that_has_it(desks: Any) -> None:
    desk: Desk = desks(step("a"))
    stale = desk.lease

    def other(desk: Desk) -> Iterator[list[Report]]:
        mine, hand, loop, snap = desk.lease, desk.hand, desk.loop, desk.snap
        late, _ = desk.sit(all_well, lease=stale)
        late.drive([close_lost])
        assert late.stop is Stop.LEASE_LOST
        assert desk.attempts() == [("a:solo", 1, "reserved")]
        desk.lease, desk.hand, desk.loop, desk.snap = mine, hand, loop, snap
        yield desk.hand.end_all(ok())

    desk.lease = desk.take_over()
    desk.drive(other)
    assert desk.store.run(RUN).outcome == "ok"


def test_a_driver_that_slept_past_its_term_starts_nothing_when_it_wakes(desks: Any) -> None:
    desk: Desk = desks(MAP)

    def play(desk: Desk) -> Iterator[list[Report]]:
        desk.clock.sleep(100_000)
        desk.take_over()
        yield [desk.hand.end(desk.hand.names()[0], ok())]
        yield desk.hand.end_all(aborted())

    assert desk.drive(play).stop is Stop.LEASE_LOST
    assert len(desk.hand.started) == 2


def test_a_driver_that_slept_between_commit_and_start_starts_nothing(desks: Any) -> None:
    desk: Desk = desks(MAP)

    def fall_asleep(moment: str) -> None:
        if moment == "after":
            desk.hook = lambda _moment: None
            desk.clock.sleep(100_000)
            desk.take_over()

    loop, hand = desk.sit(all_well)
    desk.hook = fall_asleep
    loop.drive([close_lost])
    assert loop.stop is Stop.LEASE_LOST
    assert hand.started == []


def test_a_driver_that_slept_and_lost_nothing_goes_on(desks: Any) -> None:
    desk: Desk = desks(MAP)

    def play(desk: Desk) -> Iterator[list[Report]]:
        desk.clock.sleep(100_000)
        yield from all_well(desk)

    assert desk.drive(play).stop is None
    assert desk.store.run(RUN).outcome == "ok"


# a journal that fails


class Failing:
    """A journal whose n-th commit (and, if asked, whatever else) fails."""

    def __init__(self, store: Any, commit: int, *, also: tuple[str, ...] = ()) -> None:
        self._store = store
        self._left = commit
        self._also = also

    def __getattr__(self, name: str) -> Any:
        if name in self._also:
            return self._fail
        return getattr(self._store, name)

    def commit(self, *args: Any) -> Any:
        self._left -= 1
        return self._fail() if self._left == 0 else self._store.commit(*args)

    def _fail(self, *_args: Any) -> Any:
        raise StoreError("disk-full", "the disk is full", "make room")


@pytest.mark.parametrize("commit", range(1, 6))
@pytest.mark.parametrize("also", [(), ("spool",)])
def test_a_journal_that_fails_at_any_commit_dispatches_nothing_and_loses_no_end(
    desks: Any, commit: int, also: tuple[str, ...]
) -> None:
    desk: Desk = desks(MAP, step("n"))

    def play(desk: Desk) -> Iterator[list[Report]]:
        while True:
            names = desk.hand.names()
            yield [desk.hand.end(names[0], ok("x"))]

    loop = desk.drive(play, store=Failing(desk.store, commit, also=also))
    assert loop.stop is (Stop.ERROR if commit < 6 else None)
    assert isinstance(loop.error, StoreError)
    assert len(desk.hand.started) == len(desk.attempts())
    ended = len(desk.hand.started)
    assert desk.store.take_spool(RUN) == (0 if also or commit == 1 else 1)
    unwritten = [event for event in desk.told if isinstance(event, ev.AttemptFinished) and event.unit_state == "failed"]
    assert [event.reason for event in unwritten] == ["journal_write_failed"] * (1 if also and ended else 0)
    first = list(desk.hand.started)
    desk.drive(all_well)
    assert desk.store.run(RUN).outcome == "ok"
    repeated = {r.unit_id for r in first} & {r.unit_id for r in desk.hand.started}
    assert len(repeated) == (1 if also and ended else 0)


def test_a_journal_that_cannot_renew_stops_the_driver_only_when_its_term_is_over(desks: Any) -> None:
    desk: Desk = desks(step("a"))

    def play(desk: Desk) -> Iterator[list[Report]]:
        desk.clock.advance(30_000)
        yield []
        assert desk.loop.stop is None
        desk.clock.advance(60_000)
        yield []
        assert desk.hand.cancelled == [5.0]
        yield desk.hand.end_all(aborted())

    loop = desk.drive(play, store=Failing(desk.store, 0, also=("renew", "requests", "read_lease")))
    assert loop.stop is Stop.ERROR
    assert str(loop.error) == "the disk is full"


def test_a_lost_lease_is_lost_even_if_nobody_can_say_to_whom(desks: Any) -> None:
    desk: Desk = desks(step("a"))
    desk.take_over()
    loop = desk.drive(all_well, store=Failing(desk.store, 0, also=("read_lease",)))
    assert loop.stop is Stop.LEASE_LOST
    assert str(loop.error) == f"run {RUN} is being taken over by another driver"
