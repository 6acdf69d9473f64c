"""What every store does with units and attempts: reserve, start, finish, under a lease and without it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.store import builders as b

from interlock.errors import StoreError
from interlock.model import events as ev
from interlock.model.run import Lease
from interlock.model.states import AttemptState, Reason, RunState, UnitState
from interlock.store.base import Store, UnitRow
from interlock.store.births import Committed


def only(store: Store) -> UnitRow:
    (unit,) = store.units(b.RUN)
    return unit


class AttemptsSuite:
    """Mixed into a test class whose `store` fixture gives an empty store."""

    def test_units_are_born_pending_with_their_items(self, store: Store) -> None:
        b.begin(store, 3)
        units = list(store.units(b.RUN))
        assert [(u.ordinal, u.id, u.index, u.item, u.input_hash) for u in units] == [
            (i, f"s:w{i}", i, b"%d" % i, f"sha256:in{i}") for i in range(3)
        ]
        assert {(u.state, u.kind, u.attempt, u.round, u.loop) for u in units} == {("pending", "work", 0, 1, 1)}
        assert store.steps(b.RUN)[0].state == "running"

    def test_a_unit_goes_from_reserved_over_started_to_completed(self, store: Store) -> None:
        mine = b.begin(store)
        store.commit(mine, [b.reserved(0)])
        assert (only(store).state, only(store).attempt, only(store).dispatch) == ("running", 1, "d0.0.1")
        (open_,) = store.load(b.RUN).open
        assert (open_.state, open_.dispatch, open_.process, open_.reserved_at) == ("reserved", "d0.0.1", None, 30)
        store.commit(mine, [b.running(0)])
        assert store.load(b.RUN).open[0].process == b.PROCESS
        usage = ev.Usage(input_tokens=3, output_tokens=4, cost_usd=0.5)
        end = b.finished(0, usage=usage, log=ev.LogSpan(10, 20), exit_code=0)
        assert store.commit(mine, [end]) == Committed()
        unit = only(store)
        assert (unit.state, unit.result, unit.reason, unit.ended_at) == ("completed", b'"ok"', None, 40)
        (attempt,) = store.attempts(b.RUN, 0, 0)
        assert (attempt.state, attempt.log, attempt.exit_code, attempt.process) == (
            "completed",
            ev.LogSpan(10, 20),
            0,
            b.PROCESS,
        )
        assert (attempt.reserved_at, attempt.started_at, attempt.ended_at) == (30, 31, 40)
        spent = store.spent(b.RUN)
        assert (spent.units, spent.tokens, spent.cost_usd) == (1, 7, 0.5)
        assert store.load(b.RUN).open == ()

    def test_a_warm_workers_process_is_part_of_the_reservation(self, store: Store) -> None:
        mine = b.begin(store)
        store.commit(mine, [b.reserved(0, warm=True)])
        assert store.load(b.RUN).open[0].process == b.PROCESS

    def test_a_retry_is_the_next_number_of_the_same_unit(self, store: Store) -> None:
        mine = b.begin(store)
        store.commit(mine, [b.reserved(0), b.waiting(0)])
        unit = only(store)
        assert (unit.state, unit.reason, unit.error, unit.not_before, unit.retries) == (
            "waiting",
            "non_zero_exit",
            "exit 1",
            500,
            1,
        )
        store.commit(mine, [b.reserved(0, 2), b.finished(0, 2, retries=1)])
        assert (only(store).state, only(store).attempt, only(store).not_before) == ("completed", 2, None)
        assert [(a.number, a.state) for a in store.attempts(b.RUN, 0, 0)] == [(1, "failed"), (2, "completed")]
        assert store.spent(b.RUN).units == 2

    @pytest.mark.parametrize("number", [0, 2, 7])
    def test_an_attempts_number_must_be_the_next(self, store: Store, number: int) -> None:
        mine = b.begin(store)
        with pytest.raises(StoreError) as caught:
            store.commit(mine, [b.reserved(0, number)])
        assert caught.value.code == "illegal-move"
        assert only(store).state == "pending"

    def test_a_gap_in_attempt_numbers_is_refused(self, store: Store) -> None:
        self.test_an_attempts_number_must_be_the_next(store, 2)

    def test_a_start_after_the_end_is_refused(self, store: Store) -> None:
        mine = b.begin(store)
        store.commit(mine, [b.reserved(0), b.finished(0)])
        assert store.commit(mine, [b.running(0)]).refused == ("d0.0.1",)
        assert store.attempts(b.RUN, 0, 0)[0].state == "completed"

    def test_a_unit_that_runs_or_has_ended_cannot_be_reserved(self, store: Store) -> None:
        mine = b.begin(store)
        store.commit(mine, [b.reserved(0)])
        for _ in range(2):
            with pytest.raises(StoreError) as caught:
                store.commit(mine, [b.reserved(0, 2)])
            assert caught.value.code == "illegal-move"
            store.commit(mine, [b.finished(0)])
        assert len(store.attempts(b.RUN, 0, 0)) == 1

    def test_one_bad_reservation_leaves_the_whole_batch_out(self, store: Store) -> None:
        mine = b.begin(store, 3)
        before = store.events(b.RUN)
        with pytest.raises(StoreError):
            store.commit(mine, [b.reserved(0), b.reserved(1), b.reserved(1, 2)])
        assert {u.state for u in store.units(b.RUN)} == {"pending"}
        assert store.events(b.RUN) == before

    def test_nothing_is_reserved_or_started_on_a_run_that_is_not_active(self, store: Store) -> None:
        mine = b.begin(store)
        store.commit(mine, [b.run_moved(RunState.BLOCKED, reason="effect_unknown")])
        for event in (b.reserved(0), b.completed(), b.started(1, first=1), b.asked("x", first=1)):
            with pytest.raises(StoreError) as caught:
                store.commit(mine, [event])
            assert caught.value.code == "run-not-active"

    def test_an_attempt_that_was_never_reserved_can_neither_start_nor_end(self, store: Store) -> None:
        mine = b.begin(store)
        assert store.commit(mine, [b.running(0)]).refused == ("d0.0.1",)
        assert store.commit(mine, [b.finished(0)]).refused == ("d0.0.1",)
        assert only(store).state == "pending"

    def test_a_finish_needs_its_own_dispatch_id(self, store: Store) -> None:
        mine = b.begin(store)
        store.commit(mine, [b.reserved(0)])
        assert store.commit(mine, [b.finished(0, dispatch="stranger")]) == Committed(refused=("stranger",))
        assert only(store).state == "running"
        assert store.attempts(b.RUN, 0, 0)[0].state == "reserved"

    def test_a_second_end_is_refused_and_leaves_no_event(self, store: Store) -> None:
        mine = b.begin(store)
        store.commit(mine, [b.reserved(0), b.finished(0)])
        before = store.events(b.RUN)
        assert store.commit(mine, [b.failed(0)]) == Committed(refused=("d0.0.1",))
        assert (only(store).state, store.attempts(b.RUN, 0, 0)[0].state) == ("completed", "completed")
        assert store.events(b.RUN) == before

    def test_one_late_end_does_not_lose_the_others(self, store: Store) -> None:
        mine = b.begin(store, 4)
        store.commit(mine, [b.reserved(0), b.reserved(1), b.reserved(2), b.failed(1)])
        done = store.commit(mine, [b.finished(0), b.finished(1), b.finished(2), b.reserved(3)])
        assert done == Committed(refused=("d0.1.1",))
        assert [u.state for u in store.units(b.RUN)] == ["completed", "failed", "completed", "running"]

    def test_ends_are_kept_when_another_event_of_the_batch_is_refused(self, store: Store) -> None:
        mine = b.begin(store, 2)
        store.commit(mine, [b.reserved(0)])
        with pytest.raises(StoreError) as caught:
            store.commit(mine, [b.finished(0), b.reserved(1, 5)])
        assert caught.value.code == "illegal-move"
        assert [u.state for u in store.units(b.RUN)] == ["completed", "pending"]
        assert store.commit(mine, [b.finished(0)]).refused == ("d0.0.1",)

    def test_an_end_that_the_schema_refuses_does_not_lose_the_others(self, store: Store) -> None:
        mine = b.begin(store, 2)
        store.commit(mine, [b.reserved(0), b.reserved(1)])
        nonsense = b.finished(0, state=AttemptState.COMPLETED, reason=Reason.TIMEOUT)
        with pytest.raises(StoreError) as caught:
            store.commit(mine, [nonsense, b.finished(1)])
        assert caught.value.code == "bad-row"
        assert [u.state for u in store.units(b.RUN)] == ["running", "completed"]

    @pytest.mark.parametrize("stale", [b.lease(holder="h2"), b.lease(term=2), b.lease(holder="h2", term=2)])
    def test_without_the_lease_only_ends_are_written(self, store: Store, stale: Lease) -> None:
        mine = b.begin(store, 3)
        store.commit(mine, [b.reserved(0)])
        before = len(store.events(b.RUN))
        batch: list[ev.Event] = [b.reserved(1), b.finished(0), b.run_moved(RunState.FAILED, reason="x"), b.failed(2)]
        assert store.commit(stale, batch) == Committed(lost=True, refused=("d0.2.1",))
        assert [u.state for u in store.units(b.RUN)] == ["completed", "pending", "pending"]
        assert store.run(b.RUN).state == "active"
        assert [e.type for e in store.events(b.RUN)[before:]] == ["attempt_finished"]

    def test_a_batch_of_an_older_term_is_lost(self, store: Store) -> None:
        self.test_without_the_lease_only_ends_are_written(store, b.lease(term=2))

    def test_a_batch_of_another_holder_is_lost(self, store: Store) -> None:
        self.test_without_the_lease_only_ends_are_written(store, b.lease(holder="h2"))

    def test_a_released_lease_writes_no_more_than_a_lost_one(self, store: Store) -> None:
        mine = b.begin(store)
        store.release(mine)
        assert store.commit(mine, [b.reserved(0)]) == Committed(lost=True)
        assert only(store).state == "pending"

    def test_the_new_driver_closes_and_the_old_ones_end_is_refused(self, store: Store) -> None:
        mine = b.begin(store)
        store.commit(mine, [b.reserved(0)])
        theirs = b.lease(holder="h2", term=2)
        assert store.take_lease(theirs, mine)
        lost = b.failed(0, state=AttemptState.LOST, unit_state=UnitState.PENDING, reason=Reason.LOST, exit_code=None)
        assert store.commit(theirs, [lost, b.reserved(0, 2)]) == Committed()
        assert store.commit(mine, [b.finished(0)]) == Committed(lost=True, refused=("d0.0.1",))
        assert (only(store).state, only(store).attempt) == ("running", 2)
        assert [a.state for a in store.attempts(b.RUN, 0, 0)] == ["lost", "reserved"]

    def test_an_end_is_recorded_on_a_run_that_has_ended(self, store: Store) -> None:
        mine = b.begin(store)
        store.commit(mine, [b.reserved(0)])
        b.finish_run(store, mine)
        assert store.commit(mine, [b.finished(0)]) == Committed()
        assert only(store).state == "completed"

    @pytest.mark.parametrize("left", [UnitState.RUNNING, UnitState.NOT_RUN])
    def test_an_end_cannot_leave_its_unit_running_or_never_run(self, store: Store, left: UnitState) -> None:
        mine = b.begin(store)
        store.commit(mine, [b.reserved(0)])
        with pytest.raises(StoreError) as caught:
            store.commit(mine, [b.failed(0, unit_state=left)])
        assert caught.value.code == "illegal-move"

    def test_stopped_units_fail_or_are_not_run(self, store: Store) -> None:
        mine = b.begin(store, 4)
        store.commit(mine, [b.reserved(0), b.finished(0), b.reserved(1), b.waiting(1), b.reserved(2)])
        store.commit(mine, [ev.UnitsStopped(at=80, step=0, reason="stopped")])
        assert [(u.state, u.reason, u.ended_at) for u in store.units(b.RUN)] == [
            ("completed", None, 40),
            ("failed", "non_zero_exit", 80),
            ("running", None, None),
            ("not_run", "stopped", 80),
        ]

    def test_an_unknown_unit_is_moved_by_an_answer(self, store: Store) -> None:
        mine = b.begin(store, 2)
        unsure: dict[str, Any] = {"unit_state": UnitState.UNKNOWN, "reason": Reason.TIMEOUT}
        store.commit(mine, [b.reserved(0), b.failed(0, **unsure), b.reserved(1), b.failed(1, **unsure)])
        store.commit(
            mine,
            [
                ev.UnitMoved(at=81, step=0, unit=0, state=UnitState.COMPLETED, reason="probe_done", result=b"1"),
                ev.UnitMoved(at=81, step=0, unit=1, state=UnitState.PENDING, reason="probe_not_done"),
            ],
        )
        assert [(u.state, u.result, u.reason) for u in store.units(b.RUN)] == [
            ("completed", b"1", "probe_done"),
            ("pending", None, "probe_not_done"),
        ]
        store.commit(mine, [b.reserved(1, 2)])

    def test_an_answer_that_fails_a_unit_says_why(self, store: Store) -> None:
        mine = b.begin(store)
        unsure: dict[str, Any] = {"unit_state": UnitState.UNKNOWN, "reason": Reason.TIMEOUT}
        store.commit(mine, [b.reserved(0), b.failed(0, **unsure)])
        before = next(store.units(b.RUN)).error
        again = ev.UnitMoved(at=81, step=0, unit=0, state=UnitState.FAILED, reason="parse_error", error="no JSON")
        store.commit(mine, [again])
        assert (before, next(store.units(b.RUN)).error) == (b.failed(0).error, "no JSON")
        assert "no JSON" not in str(list(store.events(b.RUN))), "an event holds no content"

    @pytest.mark.parametrize("to", [UnitState.COMPLETED, UnitState.RUNNING, UnitState.UNKNOWN])
    def test_a_running_unit_is_moved_by_its_end_only(self, store: Store, to: UnitState) -> None:
        mine = b.begin(store)
        store.commit(mine, [b.reserved(0)])
        with pytest.raises(StoreError) as caught:
            store.commit(mine, [ev.UnitMoved(at=81, step=0, unit=0, state=to)])
        assert caught.value.code == "illegal-move"
        assert str(caught.value) == f"unit 0 of step 0 cannot move from running to {to.value}"

    def test_units_stream_by_step_and_state_across_pages(self, store: Store) -> None:
        mine = b.lease()
        store.create_run(b.new_run(gates=((), ())), mine)
        store.commit(mine, [b.started(2_500), b.started(3, step=1), b.reserved(7), b.reserved(1, step=1)])
        assert [u.ordinal for u in store.units(b.RUN, step=0)] == list(range(2_500))
        assert [(u.step, u.ordinal) for u in store.units(b.RUN, state="running")] == [(0, 7), (1, 1)]
        assert [u.ordinal for u in store.units(b.RUN, step=1, limit=2)] == [0, 1]
        assert sum(1 for _ in store.units(b.RUN)) == 2_503
        assert list(store.units(b.RUN, limit=0)) == []

    def test_the_census_counts_the_last_round_and_loop_of_work(self, store: Store) -> None:
        mine = b.begin(store, 3, gate=("check", "each"))
        store.commit(mine, [b.reserved(0), b.finished(0), b.reserved(1), b.failed(1), b.reserved(2), b.failed(2)])
        (census,) = store.census(b.RUN)
        assert (census.by_state, census.by_reason) == ({"completed": 1, "failed": 2}, {"non_zero_exit": 2})
        again = ev.StepStarted(at=90, step=0, round=2, loop=1, units=(b.new_unit(3, 1),))
        store.commit(mine, [again, b.reserved(3), b.finished(3), b.asked("x", first=4)])
        (census,) = store.census(b.RUN)
        assert (census.by_state, census.by_reason) == ({"completed": 2, "failed": 1}, {"non_zero_exit": 1})

    def test_a_solo_units_next_round_replaces_it_in_the_census(self, store: Store) -> None:
        mine = b.lease()
        store.create_run(b.new_run(), mine)
        first = ev.StepStarted(at=20, step=0, round=1, loop=1, units=(b.new_unit(0),))
        second = ev.StepStarted(at=21, step=0, round=2, loop=1, units=(b.new_unit(1),))
        store.commit(mine, [first, b.reserved(0), b.failed(0), second])
        (census,) = store.census(b.RUN)
        assert census.by_state == {"pending": 1}

    def test_spooled_ends_are_taken_once(self, store: Store) -> None:
        mine = b.begin(store, 3)
        store.commit(mine, [b.reserved(0), b.reserved(1), b.failed(1)])
        store.spool(b.RUN, [b.finished(0), b.finished(1), b.reserved(2)])
        assert store.take_spool(b.RUN) == 1
        assert [u.state for u in store.units(b.RUN)] == ["completed", "failed", "pending"]
        assert store.take_spool(b.RUN) == 0
