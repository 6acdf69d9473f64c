"""The reading commands against a real journal, as text and as the JSON contract."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Read = Callable[..., str]


def test_status_tells_where_a_run_stands(read: Read) -> None:
    told = read("status", "01A")
    assert "01AAA  flow.md\nstate    completed, degraded\n" in told
    assert "units    2 completed, 1 failed (1 timeout)\n" in told
    assert "✗" not in told.partition("units")[0]
    assert told.endswith("next: interlock units 01AAA --state failed\n")


def test_status_of_a_blocked_run_says_what_to_type(read: Read) -> None:
    told = read("status")
    assert told.startswith("01BBB")
    assert "did it happen?" in told
    assert "next: interlock resolve 01BBB one:solo --done" in told
    assert "interlock resolve 01BBB one:solo --rerun" in told


def test_status_as_json_is_the_contract(read: Read) -> None:
    view = json.loads(read("status", "01A", "--json"))
    assert view["run"]["params"] == {"who": "me"}
    assert [step["state"] for step in view["steps"]] == ["completed", "completed", "skipped"]
    assert view["steps"][0]["artifact"] == ["x", "y"]
    assert view["census"] == {
        "units": 3,
        "completed": 2,
        "failed": 1,
        "skipped": 0,
        "not_run": 0,
        "reused": 0,
        "by_reason": {"timeout": 1},
    }
    assert view["usage"] == {
        "units": 3,
        "tokens": 0,
        "cost_usd": 0.0,
        "duration_ms": 8000,
        "tokens_estimated": 0,
        "unpriced": 0,
        "corrected": 0,
        "placeholders": 0,
    }


def test_runs_are_listed_newest_first(read: Read) -> None:
    assert [run["id"] for run in json.loads(read("list", "--json"))] == ["01BBB", "01AAA"]
    lines = read("list").splitlines()
    assert lines[0].split() == ["RUN", "STATE", "STARTED", "DRIVEN", "WORKFLOW"]
    assert "blocked (effect_unknown)" in lines[1]
    assert json.loads(read("list", "--state", "failed", "--json")) == []
    assert read("list", "--state", "failed") == "no runs\n"


def test_units_can_be_chosen_by_state_and_step(read: Read) -> None:
    (failed,) = json.loads(read("units", "01A", "--state", "failed", "--json"))
    assert (failed["id"], failed["item"], failed["reason"]) == ("many:b", 1, "timeout")
    assert [unit["id"] for unit in json.loads(read("units", "01A", "--step", "many", "--json"))] == ["many:a", "many:b"]
    assert json.loads(read("units", "01A", "--all", "--state", "pending", "--json")) == []


def test_control_characters_of_results_and_errors_are_escaped(read: Read) -> None:
    told = read("units", "01A")
    assert "\x1b" not in told
    assert "took\\x1b[31m too long" in told


def test_events_come_in_order_with_ids_instead_of_numbers(read: Read) -> None:
    events = [json.loads(line) for line in read("events", "01A", "--json", "--follow").splitlines()]
    assert [event["id"] for event in events] == sorted(event["id"] for event in events)
    finished = [event["unit"] for event in events if event["type"] == "attempt_finished"]
    assert finished == ["one:solo", "many:a", "many:b"]
    assert "took" not in json.dumps(events)
    assert "attempt_finished   many:b" in read("events", "01A")


def test_logs_keep_the_lines_of_each_unit_together_and_escape_them(read: Read) -> None:
    assert read("logs", "01A") == 'many:a warning \\x1b[2J\none:solo ["x","y"]\nmany:a no end\n'
    assert read("logs", "01A", "one:solo", "--follow") == '["x","y"]\n'
    assert read("logs", "01A", "many", "--stream", "out") == ""
    assert read("logs", "01A", "many:a", "--raw") == "warning \x1b[2J\nno end"
    line = json.loads(read("logs", "01A", "one", "--json"))
    assert line.pop("at").endswith("Z")
    assert line == {"schema": 1, "unit": "one:solo", "attempt": 1, "stream": "out", "text": '["x","y"]'}


def test_a_run_without_a_log_said_nothing(read: Read) -> None:
    assert read("logs", "01B") == ""


def test_a_step_that_went_on_without_its_only_unit_says_so(
    tmp_path: Path, interlock: Callable[..., Any], flow: Callable[..., Path]
) -> None:
    flow("id: bad, run: exit 3, on_error: continue", "id: late, run: echo late")
    assert interlock("run", "flow.md", cwd=tmp_path).returncode == 6
    told = interlock("status", cwd=tmp_path, PYTHONIOENCODING="utf-8").stdout
    assert "\n✓ bad    completed  1 unit: 0 completed, 1 failed (1 non_zero_exit)\n✓ late   completed  late\n" in told
