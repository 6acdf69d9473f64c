"""Views: exactly the keys of the contract, honest counts, no content in events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from interlock.model import events as ev
from interlock.model.run import Lease, Snapshot
from interlock.model.states import AttemptState, Reason, RunState, UnitState
from interlock.store.attempt_rows import Spent
from interlock.store.base import EventRow, UnitRow
from interlock.views.census import step_censuses, total
from interlock.views.events import event_row_view, live_event_view
from interlock.views.facts import PlanFacts, plan_facts
from interlock.views.runs import run_view
from interlock.views.status import RunRows, status_view
from interlock.views.units import effective, unit_view
from interlock.views.values import rfc3339, value

LEASE = Lease(
    run_id="01JDRUN",
    holder="h",
    term=2,
    pid=42,
    start_ticks=1,
    boot_id="b",
    pid_namespace="n",
    host="here",
    since_ms=0,
    renewed_ms=0,
    expires_ms=90_000,
    expires_boot_ms=0,
)
FACTS = plan_facts(
    b'{"name":"f","params":[{"name":"token","secret":true},{"name":"n"}],'
    b'"steps":[{"id":"one","map":null},{"id":"way","route":{"input":{}}}]}'
)


def test_times_are_rfc3339_in_utc_to_the_millisecond() -> None:
    assert rfc3339(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert rfc3339(None) is None


def test_damaged_json_in_a_row_is_shown_as_text() -> None:
    assert value(b"{") == "{"
    assert value(b"12345678901234567890123") == 12345678901234567890123


def test_a_run_object_has_exactly_the_contract_s_keys(rows: Any) -> None:
    view = run_view(rows.run(params_json=b'{"token":"hush","n":1}'), LEASE, FACTS)
    assert view == {
        "id": "01JDRUN",
        "workflow": "flow.md",
        "key": None,
        "state": "completed",
        "stopping": False,
        "outcome": "ok",
        "reason": None,
        "parent": None,
        "parent_unit": None,
        "forked_from": None,
        "lease": {
            "holder": "h",
            "pid": 42,
            "host": "here",
            "since": "1970-01-01T00:00:00.000Z",
            "until": "1970-01-01T00:01:30.000Z",
            "released": False,
        },
        "started_at": "2023-11-14T22:13:20.123Z",
        "ended_at": "2023-11-14T22:13:24.123Z",
        "params": {"token": "[redacted:token]", "n": 1},
    }


def test_a_plan_that_cannot_be_read_hides_nothing_of_the_run(rows: Any) -> None:
    assert plan_facts(b"torn {") == PlanFacts()
    assert run_view(rows.run(params_json=b"[]"), None, PlanFacts())["params"] == {}


def test_the_census_counts_what_was_skipped_and_what_was_never_reached(rows: Any) -> None:
    facts = plan_facts(b'{"steps":[{"id":"a"},{"id":"b"},{"id":"c"},{"id":"r","route":{}}]}')
    steps = [
        rows.step(step=0, id="a", state="failed"),
        rows.step(step=1, id="b", state="skipped"),
        rows.step(step=2, id="c", state="pending"),
        rows.step(step=3, id="r", state="pending"),
    ]
    counted = [rows.census(0, {"timeout": 2}, completed=5, failed=2, not_run=1)]
    assert total(step_censuses("failed", steps, counted, facts)) == {
        "units": 10,
        "completed": 5,
        "failed": 2,
        "skipped": 1,
        "not_run": 2,
        "reused": 0,
        "by_reason": {"timeout": 2},
    }


def test_a_step_that_may_still_be_reached_is_not_counted_as_not_run(rows: Any) -> None:
    steps = [rows.step(state="running"), rows.step(step=1, id="b", state="pending")]
    counted = total(step_censuses("active", steps, [rows.census(0, running=1, pending=3)], PlanFacts()))
    assert (counted["units"], counted["not_run"]) == (4, 0)


def test_status_has_exactly_the_contract_s_keys(rows: Any) -> None:
    large = rows.step(step=1, id="way", artifact=None, artifact_size=70_000, artifact_hash="sha256:9", detail="why")
    view = status_view(
        RunRows(
            run=rows.run(),
            lease=None,
            facts=FACTS,
            steps=[rows.step(), large],
            census=[rows.census(completed=1)],
            spent=Spent(units=3, tokens=0, cost_usd=0.0),
            notices=frozenset({"journal", "divergence:way:solo"}),
        ),
        {1: "[1,2"},
    )
    assert list(view) == ["schema", "run", "stopping", "steps", "census", "children", "usage", "divergence"]
    assert (view["schema"], view["divergence"]) == (1, ["way:solo"])
    assert [list(step) for step in view["steps"]] == [
        ["id", "state", "loop", "artifact", "reason", "feedback", "census"]
    ] * 2
    assert view["steps"][0]["artifact"] == "x"
    assert view["steps"][1]["artifact"] == {"hash": "sha256:9", "size": 70_000, "preview": "[1,2"}
    assert view["steps"][1]["feedback"] == "why"
    assert view["usage"] == {
        "units": 3,
        "tokens": 0,
        "cost_usd": 0.0,
        "duration_ms": 4000,
        "tokens_estimated": 0,
        "unpriced": 0,
        "corrected": 0,
        "placeholders": 0,
    }


def test_a_unit_object_has_exactly_the_contract_s_keys(rows: Any) -> None:
    view = unit_view(rows.unit(item=b'{"a":1}', index=0), "one")
    assert list(view) == [
        "id",
        "step",
        "item",
        "state",
        "attempt",
        "reason",
        "result",
        "engine",
        "model",
        "tokens",
        "cost_usd",
        "session",
        "worktree",
        "reused",
        "started_at",
        "ended_at",
    ]
    assert view["item"] == {"a": 1}


def test_a_unit_done_over_stands_for_the_one_before(rows: Any) -> None:
    units = [
        rows.unit(ordinal=0, id="one:a", index=0, state="completed"),
        rows.unit(ordinal=1, id="one:b", index=1, state="failed"),
        rows.unit(ordinal=2, id="one.gate:l1", kind="gate"),
        rows.unit(ordinal=3, id="one:b~r2", index=1, state="completed", round=2),
    ]

    def read(step: int) -> Iterable[UnitRow]:
        assert step == 0
        return units

    assert [unit.id for unit in effective([rows.step(round=2)], read)] == ["one:a", "one:b~r2"]
    assert [unit.id for unit in effective([rows.step()], read)] == ["one:a", "one:b", "one:b~r2"]


def _name(step: int, unit: int | None) -> tuple[str | None, str | None]:
    return f"s{step}", None if unit is None else f"s{step}:u{unit}"


def test_an_event_row_becomes_one_flat_object_with_ids_instead_of_numbers() -> None:
    row = EventRow(
        id=7, run_id="r", at=0, type="attempt_finished", step=1, unit=2, data=b'{"step":1,"unit":2,"state":"failed"}'
    )
    assert event_row_view(row, _name) == {
        "schema": 1,
        "type": "attempt_finished",
        "at": "1970-01-01T00:00:00.000Z",
        "step": "s1",
        "unit": "s1:u2",
        "id": 7,
        "run": "r",
        "state": "failed",
    }


def test_the_times_of_an_event_are_spelled_like_all_others(snapshot: Snapshot) -> None:
    data = b'{"started_at":1000,"not_before":2000,"wait_until":3000,"until":null,"driven_ms":4000}'
    row = event_row_view(EventRow(id=7, run_id="r", at=0, type="any", step=None, unit=None, data=data), _name)
    assert {name: row[name] for name in ("started_at", "not_before", "wait_until", "until", "driven_ms")} == {
        "started_at": "1970-01-01T00:00:01.000Z",
        "not_before": "1970-01-01T00:00:02.000Z",
        "wait_until": "1970-01-01T00:00:03.000Z",
        "until": None,
        "driven_ms": 4000,
    }
    late = 1_700_000_000_000
    live: list[ev.Event] = [
        ev.RunMoved(at=late, state=RunState.WAITING, wait_until=late),
        ev.EngineParked(at=late, engine="e", until=late),
        ev.AttemptFinished(
            at=late,
            step=0,
            unit=0,
            number=1,
            dispatch="d",
            state=AttemptState.FAILED,
            unit_state=UnitState.WAITING,
            not_before=late,
            started_at=late,
        ),
    ]
    for event in live:
        view = live_event_view(event, snapshot.run.id, _name)
        assert late not in view.values()
        assert list(view.values()).count("2023-11-14T22:13:20.000Z") > 1


@pytest.mark.parametrize(
    "event",
    [
        ev.AttemptFinished(
            at=0,
            step=0,
            unit=0,
            number=1,
            dispatch="d",
            state=AttemptState.FAILED,
            unit_state=UnitState.FAILED,
            reason=Reason.TIMEOUT,
            error="CONTENT",
            result=b'"CONTENT"',
        ),
        ev.StepStarted(at=0, step=0, round=1, loop=1, units=(ev.NewUnit(0, "x", 0, b'"CONTENT"', "h"),)),
    ],
)
def test_a_live_event_holds_no_content(event: ev.Event, snapshot: Snapshot) -> None:
    view = live_event_view(event, snapshot.run.id, _name)
    assert "CONTENT" not in repr(view)
    assert view["type"] == event.__struct_config__.tag
    assert view["step"] == "s0"
    assert view["run"] == "01JDRUN"
