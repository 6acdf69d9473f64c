"""Following a run that stands still says so, names what moves it on, and goes on following."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
PROGRAM = [sys.executable, "-c", "from interlock.cli.entry import main; main()"]
APPROVAL = "---\nsteps:\n  - { id: a, run: echo made, gate: { approval: true } }\n---\n"
LONG = "---\nsteps:\n  - { id: a, run: touch begun; until test -e open; do sleep 0.1; done; echo more }\n---\n"


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command that follows the last run."""
    started: list[subprocess.Popen[str]] = []

    def call(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*PROGRAM, *arguments, "last", "--follow"],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


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
