"""Signals that come while a driver is not at work: before it has a run, while it reads one, when all is done."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.waiting import until

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
Begin = Callable[..., "subprocess.Popen[Any]"]
Start = Callable[[str, str], "subprocess.Popen[str]"]
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP]
PAUSING = """
import time
from pathlib import Path
import {module} as module

whole = module.{name}

def paused(*given, **named):
    Path("here").touch()
    while not Path("go").exists():
        time.sleep(0.01)
        Path("here").touch()
    return whole(*given, **named)

module.{name} = paused
from interlock.cli.entry import main
main()
"""
READING = "interlock.driver.drive.restore"
COMPILING = "interlock.driver.compiling.require_plan"
TELLING = "interlock.cli.driving.show_summary"
CLOSING = "interlock.cli.program._flushed"


@pytest.fixture
def paused(begin: Begin, tmp_path: Path) -> Start:
    """Starts `interlock run TARGET`, and returns when it is at a place where it waits for a file `go`."""
    (tmp_path / "flow.md").write_text("---\nsteps:\n  - { id: a, run: 'echo did >> did' }\n---\n", encoding="utf-8")

    def start(place: str, target: str) -> subprocess.Popen[str]:
        module, _, name = place.rpartition(".")
        (tmp_path / "here").unlink(missing_ok=True)
        process = begin(
            "run",
            target,
            program=[sys.executable, "-c", PAUSING.format(module=module, name=name)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        until((tmp_path / "here").exists)
        return process

    return start


@pytest.fixture
def asked(paused: Start, tmp_path: Path) -> Callable[[signal.Signals], subprocess.Popen[str]]:
    """Starts a run that is asked to stop while it is read, and returns when it has waited on in spite of that."""

    def ask(number: signal.Signals) -> subprocess.Popen[str]:
        process = paused(READING, "flow.md")
        process.send_signal(number)
        # the first sign of life may have been on its way before the signal
        for _ in range(2):
            (tmp_path / "here").unlink()
            until((tmp_path / "here").exists)
        return process

    return ask


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=30)
    return process.returncode, said


def run_of(interlock: Interlock, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(interlock("status", "last", "--json", cwd=folder).stdout)["run"]
    return found


def has_ended(process: subprocess.Popen[bytes], number: signal.Signals) -> bool:
    """Tell whether it has, and ask it to if not."""
    process.send_signal(number)
    return process.poll() is not None


def full_pipe() -> tuple[int, int]:
    """Return a pipe that takes no more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * select.PIPE_BUF)
    os.set_blocking(writer, True)
    return reader, writer


def runs_in(interlock: Interlock, folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(interlock("list", "--json", cwd=folder).stdout)
    return found


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_run_is_read_ends_it_before_anything_begins_and_frees_it(
    asked: Callable[[signal.Signals], subprocess.Popen[str]],
    interlock: Interlock,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    process = asked(number)
    (tmp_path / "go").touch()
    code, said = ended(process)
    run = run_of(interlock, tmp_path)
    assert (code, run["state"], run["lease"]["released"]) == (130, "active", True)
    assert f"next: interlock run {run['id']}" in said
    assert not (tmp_path / "did").exists()
    assert interlock("run", "last", cwd=tmp_path).returncode == 0
    assert (tmp_path / "did").read_text(encoding="utf-8") == "did\n"


@pytest.mark.parametrize("number", SIGNALS)
def test_a_second_signal_does_not_wait_until_the_run_is_read(
    asked: Callable[[signal.Signals], subprocess.Popen[str]],
    interlock: Interlock,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    process = asked(number)
    process.send_signal(number)
    code, said = ended(process)
    assert (code, said.strip()) == (130, "")
    assert run_of(interlock, tmp_path)["lease"]["released"]
    assert interlock("run", "last", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_before_there_is_a_run_ends_the_program_and_leaves_none(
    paused: Start, interlock: Interlock, tmp_path: Path, number: signal.Signals
) -> None:
    process = paused(COMPILING, "flow.md")
    process.send_signal(number)
    code, said = ended(process)
    assert (code, said.strip()) == (130, "")
    assert runs_in(interlock, tmp_path) == []


@pytest.mark.parametrize("place", [TELLING, CLOSING])
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_when_all_is_done_takes_neither_the_summary_nor_the_exit_code(
    paused: Start, tmp_path: Path, number: signal.Signals, place: str
) -> None:
    process = paused(place, "flow.md")
    process.send_signal(number)
    process.send_signal(number)
    (tmp_path / "go").touch()
    code, said = ended(process)
    assert code == 0
    assert "\n  1 unit: 1 completed\n" in said


def test_a_run_that_has_ended_keeps_its_exit_code_when_a_signal_comes_while_it_is_read(
    paused: Start, interlock: Interlock, tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    assert ended(paused(READING, "flow.md"))[0] == 0
    (tmp_path / "go").unlink()
    process = paused(READING, "last")
    process.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    code, said = ended(process)
    assert (code, " completed after " in said) == (0, True)
    assert run_of(interlock, tmp_path)["lease"]["released"]


@pytest.mark.parametrize("both", [False, True])
def test_a_run_that_has_ended_waits_for_a_reader_until_it_is_asked_to_stop(
    begin: Begin, interlock: Interlock, tmp_path: Path, *, both: bool
) -> None:
    (tmp_path / "flow.md").write_text("---\nsteps:\n  - { id: a, run: exit 3 }\n---\n", encoding="utf-8")
    reader, writer = full_pipe()
    process = begin(
        "run",
        "flow.md",
        cwd=tmp_path,
        stdout=writer,
        stderr=writer if both else subprocess.PIPE,
        start_new_session=True,
    )
    os.close(writer)
    try:
        until(lambda: [run["state"] for run in runs_in(interlock, tmp_path)] == ["failed"])
        assert process.poll() is None
        until(lambda: has_ended(process, signal.SIGTERM))
    finally:
        os.close(reader)
    said = "" if process.stderr is None else process.stderr.read().decode()
    (run,) = runs_in(interlock, tmp_path)
    told = f"how run {run['id']} ended could not be written: nobody reads it"
    assert process.returncode == 1
    assert said == ("" if both else f"note: {told}; see it with `interlock status {run['id']}`\n")
