"""The suites must be able to fail: each fault is planted in the SQL, and a named test has to notice it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.conformance import Conformance

from interlock.errors import StoreError
from interlock.store.sqlite import SqliteStore

PLANTED = [
    pytest.param("finish_attempt", "AND dispatch = ?", "AND ? <> ''", "test_a_finish_needs_its_own_dispatch_id", id="finish-without-dispatch"),
    pytest.param("finish_attempt", "AND ended_at IS NULL", "", "test_a_second_end_is_refused_and_leaves_no_event", id="finish-twice"),
    pytest.param("start_attempt", "AND state = 'reserved'", "", "test_a_start_after_the_end_is_refused", id="start-after-end"),
    pytest.param("fence", "AND lease.term = ?", "AND ? > 0", "test_a_batch_of_an_older_term_is_lost", id="write-without-term"),
    pytest.param("fence", "AND lease.holder = ?", "AND ? <> ''", "test_a_batch_of_another_holder_is_lost", id="write-without-holder"),
    pytest.param("fence", "AND lease.released = 0", "", "test_a_released_lease_writes_no_more_than_a_lost_one", id="write-after-release"),
    pytest.param("take_lease", "AND renewed_ms = ?", "AND ? > 0", "test_a_lease_is_not_taken_over_a_view_that_is_out_of_date", id="rob-a-renewing-holder"),
    pytest.param("complete_step", "WHEN 'step' THEN EXISTS", "WHEN 'step' THEN 1 OR EXISTS", "test_a_gated_step_does_not_complete_unasked", id="skipped-gate"),
    pytest.param("complete_step", "AND unit.subject = ?", "AND ? <> ''", "test_a_gated_step_completes_once_this_artifact_passed", id="gate-for-another-artifact"),
    pytest.param("complete_step", "AND unit.round = step.round AND unit.loop = step.loop", "", "test_a_verdict_of_an_earlier_round_does_not_hold", id="gate-of-another-round"),
    pytest.param("complete_step", "ELSE NOT EXISTS", "ELSE 1 OR NOT EXISTS", "test_a_gate_for_each_item_needs_every_item", id="skipped-item"),
    pytest.param("reserve_unit", "AND attempt = ?", "AND ? >= -1", "test_a_gap_in_attempt_numbers_is_refused", id="gap-in-attempts"),
    pytest.param("reserve_unit", "AND state IN ('pending', 'waiting')", "", "test_a_unit_that_runs_or_has_ended_cannot_be_reserved", id="reserve-running"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "good", "bad", "noticed_by"), PLANTED)
def test_a_planted_fault_is_noticed(tmp_path: Path, query: str, good: str, bad: str, noticed_by: str) -> None:
    test = getattr(Conformance(), noticed_by)
    (tmp_path / "sound").mkdir()
    with SqliteStore.in_memory(tmp_path / "sound") as store:
        test(store)
    with SqliteStore.in_memory(tmp_path) as store:
        text = store._queries[query]  # noqa: SLF001 - the fault goes where the rule stands
        assert good in text
        store._queries = {**store._queries, query: text.replace(good, bad)}  # noqa: SLF001
        with pytest.raises((AssertionError, pytest.fail.Exception, StoreError)):
            test(store)
