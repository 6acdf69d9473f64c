"""A run's life at random, against every body: fences hold, ends are single, no gate is passed unasked."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.crash.faults import ANY_DISPATCH, ANY_HOLDER, ANY_TERM, NO_VERDICT, OVER_AN_END, START_UNRESERVED, Sql
from tests.store.life_gates import GatedLife

from interlock.errors import StoreError


class MemoryLife(GatedLife):
    memory = True


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.mark.parametrize(("body", "examples"), [(GatedLife, 10), (MemoryLife, 30)])
def test_a_runs_life_at_random(body: type[GatedLife], examples: int) -> None:
    config = settings(max_examples=examples, stateful_step_count=40, suppress_health_check=SLOW)
    run_state_machine_as_test(body, settings=config)


@pytest.mark.parametrize(
    "fault",
    [
        START_UNRESERVED,
        ANY_DISPATCH,
        OVER_AN_END,
        ANY_TERM,
        ANY_HOLDER,
        NO_VERDICT,
        ("gate_missing", "instr(step.stages, stage.name) > 0", "stage.place = 9"),
        ("gate_missing", "2 * sum(yes) > count(*)", "sum(yes) > 0"),
        ("gate_missing", "approval.override = 1", "1"),
        ("approve_unit", "AND subject = ?", "AND ? <> ''"),
        ("reserve_unit", "AND kind <> 'approval'", ""),
        ("grant_loops", "loops + excluded.loops", "excluded.loops"),
        ("reserve_unit", "AND attempt = ?", "AND ? >= -1"),
        ("finish_unit", "ended_at = ?", "ended_at = coalesce(?, 1)"),
        ("supersede_units", "SET counted = 0", "SET counted = 1"),
    ],
    ids=lambda fault: f"{fault[0]}:{fault[2][:40] or 'nothing'}",
)
def test_a_random_life_notices_a_planted_fault(fault: Sql) -> None:
    """Many short searches from different seeds: one long search may go on for a thousand lives where there is nothing."""
    config = settings(
        max_examples=60,
        stateful_step_count=40,
        suppress_health_check=SLOW,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        database=None,
    )

    def search() -> None:
        for number in range(50):
            body = type("FaultyLife", (MemoryLife,), {"fault": fault})
            run_state_machine_as_test(seed(number)(body), settings=config)

    with pytest.raises((AssertionError, pytest.fail.Exception, StoreError)):
        search()
