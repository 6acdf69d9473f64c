"""Stopping the program from outside: signals, a time limit, a kill. What is left can always be continued, and at once."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import PROGRAM
from tests.cli.waiting import is_gone, until

from interlock.cli import program

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
FLOW = "---\nsteps:\n  - id: long\n    run: |\n      {}\n---\n"
STUBBORN = "trap '' TERM INT HUP; echo $$ > pid; test -e open || while :; do sleep 0.1; done"


@pytest.fixture
def start(begin: Callable[..., subprocess.Popen[Any]], tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Starts a run of one step in a session of its own and waits until its work has begun."""

    def call(
        work: str, *arguments: str, program: Sequence[str] = PROGRAM, text: str | None = None
    ) -> subprocess.Popen[bytes]:
        (tmp_path / "flow.md").write_text(text or FLOW.format(work), encoding="utf-8")
        process = begin(
            *("run", "flow.md", *arguments),
            program=program,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(encoding="utf-8") != "")
        return process

    return call


@pytest.fixture
def said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a reading command says, without a process of its own: stubborn work stops for five seconds only."""

    def call(*arguments: str) -> str:
        assert program.run(["--project", str(tmp_path), *arguments]) == 0
        return capfd.readouterr().out

    return call


def pid_in(folder: Path) -> int:
    return int((folder / "pid").read_text(encoding="utf-8"))


def goes_on(interlock: Interlock, folder: Path) -> bool:
    (folder / "open").touch()
    return interlock("run", "last", cwd=folder).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP])
def test_each_signal_that_asks_to_stop_leaves_a_run_that_can_be_continued(
    start: Callable[..., subprocess.Popen[bytes]], interlock: Interlock, tmp_path: Path, number: signal.Signals
) -> None:
    process = start("echo $$ > pid; test -e open || sleep 60")
    process.send_signal(number)
    assert process.wait(30) == 130
    assert is_gone(pid_in(tmp_path))
    assert goes_on(interlock, tmp_path)


def test_a_second_signal_ends_at_once_what_would_not_listen(
    start: Callable[..., subprocess.Popen[bytes]], interlock: Interlock, tmp_path: Path
) -> None:
    process = start(STUBBORN)
    process.send_signal(signal.SIGINT)
    interrupted = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.7)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert time.monotonic() - interrupted < 4.5
    assert is_gone(pid_in(tmp_path))
    (unit,) = json.loads(interlock("units", "last", "--json", cwd=tmp_path).stdout)
    assert unit["state"] == "pending"
    assert goes_on(interlock, tmp_path)


def test_a_hangup_that_was_ignored_at_the_start_is_ignored(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = start("echo $$ > pid; until test -e open; do sleep 0.05; done", program=["nohup", *PROGRAM])
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.7)
    (tmp_path / "open").touch()
    assert process.wait(30) == 0


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("ignored", [False, True])
def test_the_exit_code_is_the_run_s_own_when_its_terminal_closes(
    tmp_path: Path, interlock: Interlock, *, ignored: bool, as_json: bool
) -> None:
    work = "echo $$ > pid; until test -e open; do sleep 0.05; done"
    (tmp_path / "flow.md").write_text(FLOW.format(work), encoding="utf-8")
    ours, terminal = pty.openpty()
    shell = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"] if ignored else []
    process = subprocess.Popen(
        ["setsid", "--ctty", *shell, *PROGRAM, "run", "flow.md", *(["--json"] if as_json else [])],
        cwd=tmp_path,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    try:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(encoding="utf-8") != "")
        os.close(ours)
        if ignored:
            (tmp_path / "open").touch()
        assert process.wait(30) == (0 if ignored else 130)
    finally:
        process.kill()
        process.wait()
    (run,) = json.loads(interlock("list", "--json", cwd=tmp_path).stdout)
    assert run["state"] == ("completed" if ignored else "active")
    assert is_gone(pid_in(tmp_path))


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_exit_code_is_the_run_s_own_when_nothing_can_be_written(tmp_path: Path, options: tuple[str, ...]) -> None:
    for code, work in ((1, "exit 3"), (0, "exit 0")):
        (tmp_path / "flow.md").write_text(FLOW.format(work), encoding="utf-8")
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [*PROGRAM, "run", "flow.md", *options], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, check=False
            )
        assert done.returncode == code
        assert b" ended could not be written: No space left on device; see it with `interlock status 2" in done.stderr


def test_a_time_limit_is_an_interrupt(
    start: Callable[..., subprocess.Popen[bytes]], interlock: Interlock, tmp_path: Path
) -> None:
    assert start("echo $$ > pid; test -e open || sleep 60", "--timeout", "1s").wait(30) == 130
    assert is_gone(pid_in(tmp_path))
    assert goes_on(interlock, tmp_path)


def test_after_a_kill_the_next_run_takes_over_at_once_and_ends_what_was_left(
    start: Callable[..., subprocess.Popen[bytes]], interlock: Interlock, tmp_path: Path
) -> None:
    process = start(STUBBORN)
    process.kill()
    process.wait()
    left = pid_in(tmp_path)
    (tmp_path / "open").touch()
    began = time.monotonic()
    done = interlock("run", "last", "--json", cwd=tmp_path)
    # the lease of one that is not known to be dead would hold for 90 s; how long this takes is measured by the bench
    assert time.monotonic() - began < 30
    assert done.returncode == 0
    assert is_gone(left)
    states = [json.loads(line).get("state") for line in done.stdout.splitlines()]
    assert "lost" in states


def test_while_an_abandoned_run_s_work_will_not_end_it_is_shown_as_stopping(
    start: Callable[..., subprocess.Popen[bytes]], said: Callable[..., str], tmp_path: Path
) -> None:
    process = start(STUBBORN)
    assert json.loads(said("status", "--json"))["stopping"] is False
    with subprocess.Popen([*PROGRAM, "abandon", "last"], cwd=tmp_path, stdout=subprocess.DEVNULL) as abandon:
        until(lambda: bool(json.loads(said("status", "--json"))["stopping"]))
        assert ", stopping" in said("status")
        assert process.wait(30) == 1
        assert abandon.wait(30) == 0
    assert is_gone(pid_in(tmp_path))
    status = json.loads(said("status", "--json"))
    assert (status["stopping"], status["run"]["state"]) == (False, "abandoned")


def test_a_family_that_stops_is_shown_as_stopping_wherever_one_looks(
    start: Callable[..., subprocess.Popen[bytes]], said: Callable[..., str], tmp_path: Path
) -> None:
    def shown(*arguments: str) -> Any:
        return json.loads(said(*arguments, "--json"))

    (tmp_path / "child.md").write_text(FLOW.format(STUBBORN), encoding="utf-8")
    top = "---\nsteps:\n  - { id: before, uses: ./quick.md }\n  - { id: sub, uses: ./child.md }\n---\n"
    (tmp_path / "quick.md").write_text(FLOW.format("true"), encoding="utf-8")
    process = start(STUBBORN, text=top)
    assert [run["stopping"] for run in shown("list", "--children")] == [False] * 3
    with subprocess.Popen([*PROGRAM, "abandon", "last"], cwd=tmp_path, stdout=subprocess.DEVNULL):
        until(lambda: shown("status")["stopping"])
        runs = shown("list", "--children")
        assert [(run["workflow"], run["stopping"]) for run in runs] == [
            ("child.md", True),
            ("quick.md", False),
            ("flow.md", True),
        ]
        for run in runs:
            status = shown("status", run["id"])
            assert status["stopping"] == status["run"]["stopping"] == run["stopping"]
        lines = said("list", "--children").splitlines()
        assert ["active, stopping" in line for line in lines[1:]] == [True, False, True]
        children = said("status")
        assert f"run {runs[0]['id']}  active, stopping\n" in children
        assert f"run {runs[1]['id']}  completed\n" in children
        assert process.wait(30) == 1
    assert not any(run["stopping"] for run in shown("list", "--children"))


def test_a_run_can_be_abandoned_again_while_it_stops_and_afterwards(
    start: Callable[..., subprocess.Popen[bytes]], interlock: Interlock, tmp_path: Path
) -> None:
    process = start(STUBBORN)
    with subprocess.Popen([*PROGRAM, "abandon", "last"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as abandon:
        until(lambda: json.loads(interlock("status", "--json", cwd=tmp_path).stdout)["stopping"])
        again = interlock("abandon", "last", cwd=tmp_path)
        assert process.wait(30) == 1
        assert abandon.wait(30) == 0
        assert abandon.stdout is not None
        said = abandon.stdout.read()
    after = interlock("abandon", "last", cwd=tmp_path)
    (run,) = json.loads(interlock("list", "--json", cwd=tmp_path).stdout)
    assert said == f"run {run['id']} abandoned: the run was abandoned\nnext: interlock resume {run['id']}\n"
    assert [(told.returncode, told.stdout, told.stderr) for told in (again, after)] == [(0, said, "")] * 2


def test_a_second_driver_is_refused_and_told_who_drives(
    start: Callable[..., subprocess.Popen[bytes]], interlock: Interlock, tmp_path: Path
) -> None:
    process = start("echo $$ > pid; until test -e open; do sleep 0.05; done")
    refused = interlock("run", "last", cwd=tmp_path)
    assert refused.returncode == 5
    assert f"is driven by pid {process.pid} on " in refused.stderr
    for _ in range(5):
        assert "running" in interlock("status", cwd=tmp_path).stdout
    (tmp_path / "open").touch()
    assert process.wait(30) == 0
