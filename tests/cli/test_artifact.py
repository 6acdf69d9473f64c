"""`status --artifact STEP`: what a step made, or why it has nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Interlock = Callable[..., Any]
Flow = Callable[..., Path]


def run_of(told: Any) -> str:
    return str(told.stdout.split()[1])


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_step_without_an_artifact_says_why_it_has_none(
    tmp_path: Path, interlock: Interlock, flow: Flow, options: tuple[str, ...]
) -> None:
    flow(
        'id: way, route: { input: steps.greet.output, when: [{ match: "hello me", step: other }], default: bad }',
        "id: other, needs: [way], run: echo other",
        "id: bad, needs: [way], run: exit 3",
        "id: late, run: echo late",
    )
    run = run_of(interlock("run", "flow.md", cwd=tmp_path))
    for step, why in (
        ("other", "was skipped (not_chosen), so it has no artifact"),
        ("bad", "failed (non_zero_exit) and has no artifact"),
        ("late", "never began, since the run failed (non_zero_exit); it has no artifact"),
    ):
        told = interlock("status", run, "--artifact", step, *options, cwd=tmp_path)
        expected = f"error: step '{step}' {why}\nhint: see interlock status {run}\n"
        assert (told.returncode, told.stdout, told.stderr) == (2, "", expected)
    assert not list((tmp_path / ".interlock").glob("traceback*"))


def test_a_step_that_has_not_begun_has_no_artifact_yet(tmp_path: Path, interlock: Interlock, flow: Flow) -> None:
    flow("id: held, run: echo held, gate: { approval: true }", "id: late, run: echo late")
    run = run_of(interlock("run", "flow.md", cwd=tmp_path))
    assert interlock("status", run, "--artifact", "held", cwd=tmp_path).stdout == "held\n"
    told = interlock("status", run, "--artifact", "late", cwd=tmp_path)
    assert told.stderr == (
        f"error: step 'late' has not begun, so it has no artifact yet\nhint: see interlock status {run}\n"
    )


def test_work_that_was_never_done_makes_no_artifact(tmp_path: Path, interlock: Interlock, flow: Flow) -> None:
    flow("id: long, run: sleep 60", "id: late, run: echo late")
    assert interlock("run", "flow.md", "--timeout", "100ms", cwd=tmp_path).returncode == 130
    assert interlock("abandon", "last", cwd=tmp_path).returncode == 0
    for step, why in (
        ("long", "failed (abandoned) and has no artifact"),
        ("late", "never began, since the run was abandoned; it has no artifact"),
    ):
        told = interlock("status", "last", "--artifact", step, cwd=tmp_path)
        assert (told.returncode, told.stdout) == (2, "")
        assert told.stderr.startswith(f"error: step '{step}' {why}\n")


def test_an_empty_list_that_waits_for_a_person_can_be_read(tmp_path: Path, interlock: Interlock, flow: Flow) -> None:
    flow(
        "id: none, run: \"echo '[]'\", output: { type: array, items: { type: string } }",
        "id: many, map: { over: steps.none.output }, run: echo x, gate: { approval: true }",
    )
    assert interlock("run", "flow.md", cwd=tmp_path).returncode == 4
    told = interlock("status", "last", "--artifact", "many", cwd=tmp_path)
    assert (told.returncode, told.stdout, told.stderr) == (0, "[]\n", "")
