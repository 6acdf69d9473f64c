from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.dispatch.processes.driver import Driver
from tests.dispatch.shop import Shop, marked, runs, until

from interlock.dispatch.commands.runner import CommandRunner
from interlock.dispatch.env.clean import clean
from interlock.dispatch.env.redact_base import NullRedactor, ResolvedEnv
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.processes import lookout, reaper_main
from interlock.dispatch.processes.markers import Marker
from interlock.dispatch.processes.reaper import Reaper


def _wait_for(folder: Path, name: str) -> int:
    return int(until(lambda: (folder / name).exists() and (folder / name).read_text().strip()))


def test_a_killed_drivers_children_end_within_a_second_wherever_they_went(
    tmp_path: Path, run_id: str, drive: Callable[..., Driver]
) -> None:
    driver = drive(
        tmp_path,
        "trap '' TERM HUP; echo $$ > a; while :; do sleep 1; done",
        "setsid sleep 600 & echo $! > b; sleep 600",
        "(setsid bash -c 'echo $$ > c; exec sleep 600' &) ; sleep 600",
        "env -i sleep 600 & echo $! > d; wait",
    )
    pids = [_wait_for(tmp_path, name) for name in "abcd"]
    assert all(map(runs, pids))
    died = driver.kill()
    until(lambda: not any(map(runs, pids)) and not marked(run_id), 10)
    assert time.monotonic() - died < 1.0


def test_a_driver_that_dies_right_after_it_began_leaves_nothing(
    tmp_path: Path, run_id: str, drive: Callable[..., Driver]
) -> None:
    driver = drive(tmp_path, "echo $$ > a; sleep 600")
    until(lambda: marked(run_id))
    driver.kill()
    until(lambda: not marked(run_id), 10)


def test_the_reaper_outlives_a_signal_to_the_drivers_whole_group(tmp_path: Path, drive: Callable[..., Driver]) -> None:
    driver = drive(tmp_path, "trap '' INT TERM HUP; echo $$ > a; while :; do sleep 1; done")
    pid = _wait_for(tmp_path, "a")
    os.killpg(driver.process.pid, signal.SIGKILL)
    driver.process.wait()
    until(lambda: not runs(pid), 10)


def test_another_drivers_children_are_spared(
    tmp_path: Path, run_id: str, drive: Callable[..., Driver], shop: Shop
) -> None:
    other = shop.start("sleep 600")
    spared = shop.started(other).process.pid
    folder = tmp_path / "driver"
    folder.mkdir()
    driver = drive(folder, f"echo $$ > {tmp_path}/a; sleep 600")
    _wait_for(tmp_path, "a")
    driver.kill()
    until(lambda: not marked(run_id), 10)
    assert runs(spared)


def test_the_reaper_starts_once_and_is_gone_after_close() -> None:
    reaper = Reaper(Marker("run", "holder", 1), clean(os.environ))
    assert reaper.pid is None
    reaper.start()
    pid = reaper.pid
    reaper.start()
    assert reaper.pid == pid
    assert pid is not None
    assert runs(pid)
    reaper.close()
    reaper.close()
    assert not runs(pid)
    reaper.start()
    assert reaper.pid is None


def test_a_reaper_that_somebody_ended_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout, "EVERY_S", 0.02)
    reaper = Reaper(Marker("run", "holder", 1), clean(os.environ))
    reaper.start()
    pids = [reaper.pid]
    try:
        for _ in range(2):
            assert pids[-1] is not None
            os.kill(pids[-1], signal.SIGKILL)
            until(lambda: reaper.pid not in (*pids, None))
            pids.append(reaper.pid)
        assert pids[-1] is not None
        assert runs(pids[-1])
    finally:
        reaper.close()
    assert not any(runs(pid) for pid in pids if pid is not None)


def test_a_follower_that_cannot_be_started_at_once_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout, "EVERY_S", 0.02)
    reaper = Reaper(Marker("run", "holder", 1), clean(os.environ))
    reaper.start()
    first = reaper.pid
    assert first is not None
    refusals = iter(range(3))
    pipe = os.pipe

    def scarce() -> tuple[int, int]:
        if next(refusals, None) is None:
            return pipe()
        raise OSError(24, "Too many open files")

    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pipe", scarce)
            os.kill(first, signal.SIGKILL)
            until(lambda: reaper.pid != first)
        assert next(refusals, None) is None
        assert reaper.pid is not None
        assert runs(reaper.pid)
    finally:
        reaper.close()


class Door:
    """A lock that knows who came to it, let in or not."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self.came.append(threading.get_ident())
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_nobody_goes_on_before_the_reaper_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    reaper = Reaper(Marker("run", "holder", 1), clean(os.environ))
    spawn = reaper._spawn  # noqa: SLF001 - where another thread comes in between
    seen: list[int | None] = []

    def start() -> None:
        reaper.start()
        seen.append(reaper.pid)

    other = threading.Thread(target=start)

    def slowly(reading: int) -> subprocess.Popen[bytes]:
        other.start()
        until(lambda: len(door.came) > 1 or not other.is_alive())
        return spawn(reading)

    door = Door()
    monkeypatch.setattr(reaper, "_lock", door)
    monkeypatch.setattr(reaper, "_spawn", slowly)
    try:
        reaper.start()
        other.join()
        assert seen == [reaper.pid]
        assert reaper.pid is not None
    finally:
        reaper.close()


def test_a_killed_drivers_children_end_though_its_first_reaper_was_killed_before(
    tmp_path: Path, drive: Callable[..., Driver]
) -> None:
    driver = drive(tmp_path, "echo $$ > a; sleep 600")
    pid = _wait_for(tmp_path, "a")
    first: int = until(lambda: reaper_of(driver))
    os.kill(first, signal.SIGKILL)
    until(lambda: reaper_of(driver) not in (first, 0))
    driver.kill()
    until(lambda: not runs(pid), 10)


def reaper_of(driver: Driver) -> int:
    """Return the pid of the driver's reaper, 0 while it has none that runs."""
    for child in psutil.Process(driver.process.pid).children():
        with contextlib.suppress(psutil.Error):
            if reaper_main.__file__ in child.cmdline():
                return child.pid
    return 0


def test_the_reaper_ignores_the_signals_of_a_closing_terminal() -> None:
    reaper = Reaper(Marker("run", "holder", 1), clean(os.environ))
    reaper.start()
    pid = reaper.pid
    assert pid is not None
    try:
        ignored = (1 << (signal.SIGHUP - 1)) | (1 << (signal.SIGINT - 1)) | (1 << (signal.SIGTERM - 1))

        def mask() -> int:
            text = Path(f"/proc/{pid}/status").read_text()
            return int(next(line for line in text.splitlines() if line.startswith("SigIgn")).split()[1], 16)

        until(lambda: mask() & ignored == ignored)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
        assert runs(pid)
        assert os.getsid(pid) == pid
    finally:
        reaper.close()


def test_without_an_interpreter_to_start_it_work_goes_on_unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    reaper = Reaper(Marker("run", "holder", 1), clean(os.environ))
    reaper.start()
    assert reaper.pid is None
    reaper.close()


def test_a_driver_that_is_gone_before_the_reaper_looks_is_noticed_though_its_pipe_is_held() -> None:
    program = Path(reaper_main.__file__)
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-E", str(program), "nobody:", "4000000"], stdin=subprocess.PIPE
    ) as late:
        assert late.wait(20) == 0


def test_a_runner_leaves_a_reaper_that_it_was_given_running(tmp_path: Path) -> None:
    marker = Marker("run", "holder", 1)
    reaper = Reaper(marker, clean(os.environ))
    reaper.start()
    with contextlib.closing(RunLog(tmp_path / "log")) as log:
        CommandRunner(print, lambda _: ResolvedEnv({}, NullRedactor()), log, tmp_path, marker, reaper=reaper).close()
    pid = reaper.pid
    assert pid is not None
    assert runs(pid)
    reaper.close()
