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
    pytest.param("fence", "AND top.id = ?", "AND ? <> ''", "test_a_run_of_another_family_is_not_written_under_this_lease", id="write-to-a-stranger"),
    pytest.param("fence", "coalesce(run.root, run.id)", "run.id", "test_who_lost_the_lease_changes_no_child_but_ends_its_own_attempts", id="child-without-lease"),
    pytest.param("dispatched", "AND step.child = 0", "", "test_what_a_child_uses_counts_once_and_in_all_runs_above_it", id="child-counted-twice"),
    pytest.param("fence", "AND lease.released = 0", "", "test_a_released_lease_writes_no_more_than_a_lost_one", id="write-after-release"),
    pytest.param("take_lease", "AND renewed_ms = ?", "AND ? > 0", "test_a_lease_is_not_taken_over_a_view_that_is_out_of_date", id="rob-a-renewing-holder"),
    pytest.param("gate_missing", "instr(step.stages, stage.name) > 0", "stage.place = 9", "test_a_gated_step_does_not_complete_unasked", id="skipped-gate"),
    pytest.param("gate_missing", "instr(step.stages, stage.name) > 0", "instr(step.stages, stage.name) = 1", "test_each_stage_of_a_gate_must_pass", id="skipped-stage"),
    pytest.param("gate_missing", "2 * sum(yes) > count(*)", "sum(yes) > 0", "test_judges_that_have_not_answered_count_as_asked", id="one-judge-passes"),
    pytest.param("gate_missing", "2 * sum(yes) > count(*)", "2 * sum(yes) >= count(*)", "test_a_tie_of_judges_passes_nothing", id="tie-passes"),
    pytest.param("gate_missing", "WHERE turn = 1", "WHERE turn > 0", "test_of_an_items_equal_results_the_verdict_of_the_last_loop_holds", id="earlier-loop-counts"),
    pytest.param("gate_missing", "coalesce(unit.verdict = 'pass', 0)", "1", "test_a_later_stage_does_not_make_up_for_an_earlier_one", id="any-answer-passes"),
    pytest.param("gate_missing", "unit.subject,", "(SELECT hash FROM subject),", "test_verdicts_on_another_subject_never_count", id="gate-for-another-artifact"),
    pytest.param("gate_missing", "unit.round = step.round AND unit.loop = step.loop", "1", "test_a_verdict_of_an_earlier_round_does_not_hold", id="gate-of-another-round"),
    pytest.param("gate_missing", "unit.state = 'completed' AND unit.counted = 1", "0", "test_a_gate_for_each_item_needs_every_item", id="skipped-item"),
    pytest.param("gate_missing", "approval.override = 1", "1", "test_an_approval_that_overrides_nothing_is_only_one_stage", id="every-approval-overrides"),
    pytest.param("gate_missing", "AND overridden.verdict = 'pass'", "", "test_of_several_overrides_the_last_decides", id="rejection-overrides"),
    pytest.param("gate_missing", "overridden.turn = 1 AND", "", "test_of_several_overrides_the_last_decides", id="earlier-override-counts"),
    pytest.param("complete_step", "AND NOT EXISTS", "AND 1 OR NOT EXISTS", "test_a_step_with_open_units_does_not_complete", id="completed-while-open"),
    pytest.param("approve_unit", "AND subject = ?", "AND ? <> ''", "test_a_verdict_is_taken_once_and_only_for_what_was_asked", id="verdict-on-the-unseen"),
    pytest.param("approve_unit", "AND kind = 'approval'", "", "test_a_verdict_is_taken_once_and_only_for_what_was_asked", id="person-answers-a-check"),
    pytest.param("approve_unit", "AND state = 'pending'", "", "test_a_verdict_is_taken_once_and_only_for_what_was_asked", id="verdict-twice"),
    pytest.param("reserve_unit", "AND kind <> 'approval'", "", "test_no_dispatch_ever_answers_for_a_person", id="dispatched-approval"),
    pytest.param("usage_history", "CASE WHEN estimated = 0 THEN input_tokens END", "input_tokens", "test_the_history_of_usage_spans_runs_latest_first_and_holds_no_estimates", id="estimates-of-estimates"),
    pytest.param("usage_history", "OR estimated = 0 AND", "OR", "test_the_history_of_usage_spans_runs_latest_first_and_holds_no_estimates", id="estimates-alone"),
    pytest.param("usage_history", "cost_usd IS NOT NULL OR", "", "test_the_history_of_usage_spans_runs_latest_first_and_holds_no_estimates", id="cost-without-tokens"),
    pytest.param("finish_unit", "session = coalesce(?, session)", "session = ?", "test_a_session_stays_until_an_answer_names_another", id="session-forgotten"),
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
