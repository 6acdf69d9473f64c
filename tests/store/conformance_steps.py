"""What every store does with steps: moves, gates, artifacts. No sequence of events gets past a gate."""

from __future__ import annotations

import pytest
from tests.store import builders as b

from interlock.errors import StoreError
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.run import Lease
from interlock.model.states import STEP_MOVES, StepState, UnitState
from interlock.store.base import Store

OK = b'["ok"]'
RESULT = canon.sha256(b'"ok"')


def gate(store: Store) -> tuple[str, str | None]:
    """The step's state and artifact hash."""
    (step,) = store.steps(b.RUN)
    return step.state, step.artifact_hash


def refused(store: Store, mine: Lease, event: ev.Event, code: str) -> None:
    before = store.steps(b.RUN), len(store.events(b.RUN))
    with pytest.raises(StoreError) as caught:
        store.commit(mine, [event])
    assert caught.value.code == code
    assert (store.steps(b.RUN), len(store.events(b.RUN))) == before


def work_done(store: Store, units: int, gate: b.Gate) -> Lease:
    mine = b.begin(store, units, gate=gate)
    store.commit(mine, [b.reserved(i) for i in range(units)])
    store.commit(mine, [b.finished(i) for i in range(units)])
    return mine


class StepsSuite:
    """Mixed into a test class whose `store` fixture gives an empty store."""

    def test_a_step_without_a_gate_completes_with_its_artifact(self, store: Store) -> None:
        mine = work_done(store, 1, ())
        store.commit(mine, [b.completed(OK, route=("next",))])
        (step,) = store.steps(b.RUN)
        assert (step.state, step.artifact, step.artifact_hash, step.artifact_size) == (
            "completed",
            OK,
            canon.sha256(OK),
            6,
        )
        assert (step.route, step.started_at, step.ended_at) == (("next",), 20, 60)
        assert store.artifact(b.RUN, 0) == OK

    def test_an_absent_artifact_is_none(self, store: Store) -> None:
        mine = work_done(store, 1, ())
        store.commit(mine, [b.completed(None)])
        assert store.artifact(b.RUN, 0) is None
        assert store.load(b.RUN).steps[0].artifact is None

    @pytest.mark.parametrize("size", [64 * 1024, 64 * 1024 + 1, 3_000_000])
    def test_an_artifact_of_any_size_reads_back(self, store: Store, size: int) -> None:
        artifact = b'"' + b"x" * (size - 2) + b'"'
        mine = work_done(store, 1, ())
        store.commit(mine, [b.completed(artifact)])
        in_file = size > 64 * 1024
        (step,) = store.steps(b.RUN)
        assert (step.artifact is None, step.artifact_size) == (in_file, size)
        assert store.artifact(b.RUN, 0) == artifact
        assert store.load(b.RUN).steps[0].artifact == artifact
        assert store.referenced_artifacts() == (frozenset({canon.sha256(artifact)}) if in_file else frozenset())

    def test_an_artifact_that_is_not_its_hash_is_refused(self, store: Store) -> None:
        mine = work_done(store, 1, ())
        refused(store, mine, b.completed(OK, artifact_hash=canon.sha256(b"[]")), "artifact-hash")
        refused(store, mine, b.completed(None, artifact_hash=canon.sha256(OK)), "artifact-hash")

    def test_a_step_with_open_units_does_not_complete(self, store: Store) -> None:
        mine = b.begin(store, 2)
        store.commit(mine, [b.reserved(0), b.finished(0), b.reserved(1)])
        refused(store, mine, b.completed(), "units-open")
        store.commit(mine, [b.waiting(1)])
        refused(store, mine, b.completed(), "units-open")

    def test_a_gated_step_does_not_complete_unasked(self, store: Store) -> None:
        mine = work_done(store, 1, ("check",))
        refused(store, mine, b.completed(), "gate-not-passed")
        assert gate(store) == ("running", None)

    def test_a_gated_step_completes_once_this_artifact_passed(self, store: Store) -> None:
        mine = work_done(store, 1, ("check",))
        store.commit(mine, [b.asked(canon.sha256(OK), first=1)])
        refused(store, mine, b.completed(), "gate-not-passed")
        store.commit(mine, [b.reserved(1)])
        refused(store, mine, b.completed(), "gate-not-passed")
        store.commit(mine, [b.finished(1, verdict="pass")])
        refused(store, mine, b.completed(b"[]"), "gate-not-passed")
        store.commit(mine, [b.completed()])
        assert gate(store) == ("completed", canon.sha256(OK))

    @pytest.mark.parametrize("verdict", ["reject", None])
    def test_what_was_not_passed_stays_out(self, store: Store, verdict: ev.Verdict | None) -> None:
        mine = work_done(store, 1, ("check",))
        store.commit(mine, [b.asked(canon.sha256(OK), first=1), b.reserved(1), b.finished(1, verdict=verdict)])
        refused(store, mine, b.completed(), "gate-not-passed")

    def test_a_verdict_of_an_earlier_round_does_not_hold(self, store: Store) -> None:
        mine = work_done(store, 1, ("check",))
        store.commit(mine, [b.asked(canon.sha256(OK), first=1), b.reserved(1), b.finished(1, verdict="pass")])
        again = ev.StepStarted(at=90, step=0, round=2, loop=1, units=(b.new_unit(2, 0),))
        store.commit(mine, [again, b.reserved(2), b.finished(2)])
        refused(store, mine, b.completed(), "gate-not-passed")

    def test_a_work_units_answer_is_no_verdict(self, store: Store) -> None:
        mine = b.begin(store, 1, gate=("check",))
        store.commit(mine, [b.reserved(0)])
        with pytest.raises(StoreError) as caught:
            store.commit(mine, [b.finished(0, verdict="pass")])
        assert caught.value.code == "bad-row"

    def test_a_gate_for_each_item_needs_every_item(self, store: Store) -> None:
        mine = work_done(store, 2, ("check", "each"))
        refused(store, mine, b.completed(), "gate-not-passed")
        store.commit(mine, [b.asked(RESULT, RESULT, first=2), b.reserved(2), b.finished(2, verdict="pass")])
        refused(store, mine, b.completed(), "gate-not-passed")
        store.commit(mine, [b.reserved(3), b.finished(3, verdict="pass")])
        store.commit(mine, [b.completed()])
        assert gate(store)[0] == "completed"

    def test_a_gate_for_each_item_judges_that_items_result(self, store: Store) -> None:
        mine = work_done(store, 1, ("check", "each"))
        store.commit(mine, [b.asked(canon.sha256(b'"other"'), first=1), b.reserved(1), b.finished(1, verdict="pass")])
        refused(store, mine, b.completed(), "gate-not-passed")

    def test_a_gate_for_each_item_passes_over_failed_items(self, store: Store) -> None:
        mine = b.begin(store, 2, gate=("check", "each"))
        store.commit(mine, [b.reserved(0), b.failed(0), b.reserved(1), b.finished(1, result=None)])
        absent = ev.NewUnit(2, "s:g", 1, b"1", "h", canon.sha256(b"null"))
        added = ev.UnitsAdded(at=50, step=0, kind="gate", round=1, loop=1, state=StepState.GATING, units=(absent,))
        store.commit(mine, [added, b.reserved(2), b.finished(2, verdict="pass")])
        store.commit(mine, [b.completed()])
        assert gate(store)[0] == "completed"

    def test_a_completed_step_never_moves_again(self, store: Store) -> None:
        mine = work_done(store, 1, ())
        store.commit(mine, [b.completed()])
        for event in (
            b.completed(b"[]"),
            b.step_moved(StepState.FAILED, reason="timeout"),
            b.step_moved(StepState.RUNNING),
            b.started(1, first=1, round_=2),
        ):
            refused(store, mine, event, "illegal-move")

    @pytest.mark.parametrize("to", sorted(set(StepState) - STEP_MOVES[StepState.PENDING]))
    def test_a_pending_step_moves_by_the_table_only(self, store: Store, to: StepState) -> None:
        store.create_run(b.new_run(), b.lease())
        refused(store, b.lease(), b.step_moved(to, reason="timeout"), "illegal-move")

    def test_a_failed_step_is_reopened_with_its_round(self, store: Store) -> None:
        mine = b.begin(store)
        store.commit(mine, [b.reserved(0), b.failed(0)])
        store.commit(mine, [b.step_moved(StepState.FAILED, reason="non_zero_exit", detail="exit 1")])
        (step,) = store.steps(b.RUN)
        assert (step.state, step.reason, step.detail, step.ended_at) == ("failed", "non_zero_exit", "exit 1", 60)
        store.commit(mine, [b.started(1, first=1, round_=2)])
        (step,) = store.steps(b.RUN)
        assert (step.state, step.reason, step.detail, step.round, step.ended_at) == ("running", None, "", 2, None)
        refused(store, mine, b.started(1, first=2, round_=1), "illegal-move")

    def test_a_failed_step_needs_a_reason(self, store: Store) -> None:
        mine = b.begin(store)
        refused(store, mine, b.step_moved(StepState.FAILED), "bad-row")

    def test_work_units_come_with_their_steps_start_only(self, store: Store) -> None:
        mine = b.begin(store)
        refused(store, mine, b.asked("x", first=1, kind="work"), "illegal-move")

    def test_a_step_that_is_not_there_is_refused(self, store: Store) -> None:
        mine = b.begin(store)
        for event in (b.started(1, step=9), b.step_moved(StepState.SKIPPED, step=9)):
            refused(store, mine, event, "illegal-move")
        refused(store, mine, ev.UnitsStopped(at=1, step=9, reason="x"), "illegal-move")

    def test_event_rows_hold_no_content(self, store: Store) -> None:
        mine = b.begin(store, 1)
        content = "Zebra"
        store.commit(mine, [b.reserved(0), b.failed(0, unit_state=UnitState.WAITING, not_before=1, error=content)])
        store.commit(mine, [b.reserved(0, 2), b.finished(0, 2, result=b'"Zebra"')])
        store.commit(mine, [b.completed(b'"Zebra"', detail=content)])
        assert all(content not in event.data.decode() for event in store.events(b.RUN))
