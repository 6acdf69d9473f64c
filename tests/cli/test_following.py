"""Following a run that stands still says so, names what moves it on, and goes on following."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
APPROVAL = "---\nsteps:\n  - { id: a, run: echo made, gate: { approval: true } }\n---\n"
LONG = "---\nsteps:\n  - { id: a, run: touch begun; until test -e open; do sleep 0.1; done; echo more }\n---\n"


@pytest.fixture
def follow(begin: Callable[..., subprocess.Popen[Any]], tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts a command that follows the last run."""

    def call(*arguments: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return begin(*arguments, "last", "--follow", cwd=tmp_path, stdout=pipe, stderr=pipe, text=True)

    return call


def first_lines(process: subprocess.Popen[str], number: int) -> list[str]:
    assert process.stderr is not None
    return [process.stderr.readline() for _ in range(number)]


@pytest.mark.parametrize("command", ["events", "logs"])
def test_a_run_that_waits_for_a_person_is_said_to(
    tmp_path: Path, interlock: Interlock, follow: Callable[..., subprocess.Popen[str]], command: str
) -> None:
    (tmp_path / "flow.md").write_text(APPROVAL, encoding="utf-8")
    assert interlock("run", "flow.md", cwd=tmp_path).returncode == 4
    process = follow(command)
    said, status, approve = first_lines(process, 3)
    assert " waits for a person" in said
    assert said.startswith("note: run ")
    assert status.startswith("next: interlock status ")
    assert approve.strip().startswith("interlock approve ")
    assert interlock("approve", "last", cwd=tmp_path).returncode == 0
    assert interlock("run", "last", cwd=tmp_path).returncode == 0
    # it followed on, to the end
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert ("run_moved" in out and "completed" in out) if command == "events" else "made" in out
    # between approval and run it had nobody again
    assert err.count("note:") == err.count("note: nobody drives run ") <= 1


def test_a_run_without_a_driver_is_said_to_have_none(
    tmp_path: Path, interlock: Interlock, follow: Callable[..., subprocess.Popen[str]]
) -> None:
    (tmp_path / "flow.md").write_text(LONG, encoding="utf-8")
    assert interlock("run", "flow.md", "--timeout", "1s", cwd=tmp_path).returncode == 130
    events, logs = follow("events"), follow("logs")
    for process in (events, logs):
        said, todo = first_lines(process, 2)
        assert said.startswith("note: nobody drives run ")
        assert todo.startswith("next: interlock run ")
    (tmp_path / "open").touch()
    assert interlock("run", "last", cwd=tmp_path).returncode == 0
    assert "more" in logs.communicate(timeout=30)[0]
    events.communicate(timeout=30)
    assert (events.returncode, logs.returncode) == (0, 0)
