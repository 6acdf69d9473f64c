from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.driver.desk import HOST, RUN, Desk, real_plan

from interlock.dispatch.processes.identity import alive as real_alive
from interlock.driver.clock import SystemClock
from interlock.driver.lease import (
    RENEW_MS,
    TERM_MS,
    acquire,
    claimable,
    fresh,
    held_error,
    kept_off,
    lost_error,
    renewed,
    this_host,
)
from interlock.errors import LeaseHeldError
from interlock.model import events as ev
from interlock.model.events import Process
from interlock.model.run import Lease
from interlock.model.states import RunState, StepState
from interlock.testing.build import step
from interlock.testing.clock import FakeClock

CLOCK = FakeClock()
OTHER_BOOT = msgspec.structs.replace(HOST, process=Process(1, 1, "other boot"))
OTHER_NAMESPACE = msgspec.structs.replace(HOST, pid_namespace="other")


def lease(**changes: Any) -> Lease:
    return msgspec.structs.replace(fresh(RUN, 3, HOST, CLOCK), **changes)


def alive(_process: Process) -> bool:
    return True


def dead(_process: Process) -> bool:
    return False


@pytest.mark.parametrize(
    ("held", "host", "living", "expected"),
    [
        (lease(), HOST, alive, False),
        (lease(), HOST, dead, True),
        (lease(released=True), HOST, alive, True),
        (lease(), OTHER_NAMESPACE, dead, False),
        (lease(expires_boot_ms=CLOCK.boot), HOST, alive, True),
        (lease(expires_boot_ms=CLOCK.boot + 1), HOST, alive, False),
        (lease(expires_boot_ms=CLOCK.boot), OTHER_NAMESPACE, alive, True),
        # on one boot the wall clock says nothing
        (lease(expires_ms=0), HOST, alive, False),
        (lease(expires_ms=CLOCK.wall + 10**10), HOST, dead, True),
        # across boots the pid says nothing
        (lease(), OTHER_BOOT, dead, False),
        (lease(expires_ms=CLOCK.wall), OTHER_BOOT, alive, True),
        (lease(expires_ms=CLOCK.wall + 2 * TERM_MS), OTHER_BOOT, alive, False),
        (lease(expires_ms=CLOCK.wall + 2 * TERM_MS + 1), OTHER_BOOT, alive, True),
    ],
)
def test_a_lease_is_claimable_only_with_proof(held: Lease, host: Any, living: Any, *, expected: bool) -> None:
    assert claimable(held, host, CLOCK, living) is expected


def test_a_lease_is_renewed_long_before_it_ends() -> None:
    clock = FakeClock()
    first = fresh(RUN, 1, HOST, clock)
    clock.advance(RENEW_MS)
    later = renewed(first, clock)
    assert RENEW_MS <= 30_000
    assert TERM_MS == 90_000
    assert (later.holder, later.term, later.since_ms) == (first.holder, first.term, first.since_ms)
    assert later.expires_boot_ms - first.expires_boot_ms == later.expires_ms - first.expires_ms == RENEW_MS


def test_holders_are_random() -> None:
    assert len({fresh(RUN, 1, HOST, CLOCK).holder for _ in range(50)}) == 50


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path, real_plan(tmp_path, step("a")))
    yield made
    made.close()


def test_a_second_driver_is_told_who_holds_the_run(desk: Desk) -> None:
    with pytest.raises(LeaseHeldError) as caught:
        acquire(desk.store, RUN, HOST, desk.clock, alive)
    assert str(caught.value) == (
        "run run-1 is driven by pid 1 on host since 2023-11-14 22:13:20Z, lease until 2023-11-14 22:14:50Z"
    )
    assert caught.value.hint == "watch it: interlock events run-1 --follow; stop it for good: interlock abandon run-1"


def test_a_dead_drivers_lease_is_taken_at_once_with_a_higher_term(desk: Desk) -> None:
    taken, before = acquire(desk.store, RUN, HOST, desk.clock, dead)
    assert before == desk.lease
    assert taken.term == desk.lease.term + 1
    assert desk.store.read_lease(RUN) == taken
    assert desk.store.renew(renewed(desk.lease, desk.clock)) is False
    desk.store.release(desk.lease)
    assert desk.store.read_lease(RUN) == taken


def test_a_holder_that_renews_while_another_looks_is_not_robbed(desk: Desk) -> None:
    desk.clock.advance(TERM_MS)
    looked = desk.store.read_lease(RUN)
    assert looked is not None
    assert claimable(looked, HOST, desk.clock, alive)
    assert desk.store.renew(renewed(desk.lease, desk.clock))
    assert desk.store.take_lease(fresh(RUN, looked.term + 1, HOST, desk.clock), looked) is False
    with pytest.raises(LeaseHeldError):
        acquire(desk.store, RUN, HOST, desk.clock, alive)


class Contested:
    """A journal in which somebody else is always faster."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._desk.store, name)

    def take_lease(self, _lease: Lease, _over: Lease | None) -> bool:
        return False


def test_who_is_never_fast_enough_gives_up(desk: Desk) -> None:
    store: Any = Contested(desk)
    with pytest.raises(LeaseHeldError):
        acquire(store, RUN, HOST, desk.clock, dead)


def test_nobody_can_say_who_is_taking_over() -> None:
    assert str(held_error(RUN, None)) == "run run-1 is being taken over by another driver"


def test_drivers_are_kept_off_for_a_moment_and_the_lease_then_says_what_it_said_before(desk: Desk) -> None:
    desk.store.release(desk.lease)
    before = desk.store.read_lease(RUN)
    assert before is not None
    with kept_off(desk.store, RUN, SystemClock()) as free:
        assert free
        with pytest.raises(LeaseHeldError):
            acquire(desk.store, RUN, this_host(), SystemClock(), real_alive)
        with kept_off(desk.store, RUN, SystemClock()) as second:
            assert not second
    assert desk.store.read_lease(RUN) == msgspec.structs.replace(before, term=before.term + 2)


TAKEN = "run run-1 was taken over by pid 1 on host at 2023-11-14 22:13:20Z"


def test_who_lost_a_run_that_is_driven_on_is_told_by_whom(desk: Desk) -> None:
    desk.take_over()
    error = lost_error(desk.store, RUN)
    assert (str(error), error.exit_code) == (TAKEN, 5)
    assert error.hint == "see where it stands: interlock status run-1"


@pytest.mark.parametrize(
    ("end", "left", "hint"),
    [
        (
            ev.RunMoved(at=1, state=RunState.COMPLETED, outcome="ok"),
            " and has since ended as completed",
            "see it: interlock status run-1",
        ),
        (
            ev.RunMoved(at=1, state=RunState.COMPLETED, outcome="degraded"),
            " and has since ended as completed, degraded",
            "see it: interlock status run-1",
        ),
        (
            ev.RunMoved(at=1, state=RunState.BLOCKED, reason="approval_needed"),
            ", which left it blocked",
            "see where it stands: interlock status run-1",
        ),
    ],
)
def test_who_lost_a_run_is_told_what_became_of_it_since(desk: Desk, end: ev.RunMoved, left: str, hint: str) -> None:
    lease = desk.take_over()
    step_done = ev.StepMoved(at=1, step=0, state=StepState.SKIPPED, reason="not_chosen")
    desk.store.commit(lease, [step_done, end])
    desk.store.release(lease)
    error = lost_error(desk.store, RUN)
    assert (str(error), error.hint) == (f"{TAKEN}{left}", hint)
