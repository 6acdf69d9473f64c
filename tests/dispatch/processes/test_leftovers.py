from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import msgspec
import pytest
from tests.dispatch.shop import runs, until

from interlock.dispatch.processes import identity
from interlock.dispatch.processes.leftovers import end_leftovers, end_strays
from interlock.dispatch.processes.markers import VARIABLE, Mark, Marker, parse
from interlock.model.events import Process

RUN = f"leftover{os.getpid()}"
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process as an earlier driver would have left it, marked or not."""
    started = []

    def begin(mark: str = "", *argv: str) -> subprocess.Popen[bytes]:
        env = dict(os.environ) | ({VARIABLE: mark} if mark else {})
        started.append(subprocess.Popen(argv or ("sleep", "600"), env=env, start_new_session=True))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def _identity(child: subprocess.Popen[bytes]) -> Process:
    process = identity.identify(child.pid)
    assert process is not None
    return process


def test_a_recorded_process_is_ended_with_its_tree(start: Start) -> None:
    child = start("", "bash", "-c", "sleep 600 & setsid sleep 600 & wait")
    below = until(lambda: (found := _children(child.pid)) and len(found) == 2 and found)
    assert end_leftovers(RUN, [_identity(child)], 2) == 1
    assert not any(map(runs, (child.pid, *below)))


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:  # noqa: PTH123 - one read of /proc
        return [int(text) for text in file.read().split()]


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another"}])
def test_a_reused_pid_is_left_alone(start: Start, change: dict[str, int | str]) -> None:
    child = start()
    assert end_leftovers(RUN, [msgspec.structs.replace(_identity(child), **change)], 2) == 0
    assert runs(child.pid)


def test_marked_processes_of_earlier_drivers_of_the_run_are_ended(start: Start) -> None:
    dead, ours, other = start(f"{RUN}:old:9:d"), start(f"{RUN}:me:10:d"), start(f"{RUN}x:old:1:d")
    assert end_leftovers(RUN, [], 10) == 1
    assert not runs(dead.pid)
    assert runs(ours.pid)
    assert runs(other.pid)


def test_what_a_driver_has_running_that_took_over_meanwhile_is_left_alone(start: Start) -> None:
    later, strange = start(f"{RUN}:taker:3:d"), start(f"{RUN}:who:none:d")
    assert end_leftovers(RUN, [], 2) == 0
    assert runs(later.pid)
    assert runs(strange.pid)


def test_a_mark_of_an_outer_driver_counts_as_well(start: Start) -> None:
    inner = start(f"inner:h:1:d {RUN}:old:1:d")
    assert end_leftovers(RUN, [], 2) == 1
    assert not runs(inner.pid)


def test_strays_are_those_of_the_asked_attempts_only(start: Start) -> None:
    mine, others, elder = start(f"{RUN}:h:1:a"), start(f"{RUN}:h:1:b"), start(f"{RUN}:h:10:a")
    assert end_strays(Marker(RUN, "h", 1), "a".__eq__) == 1
    assert mine.wait(timeout=30) == -signal.SIGKILL
    assert runs(others.pid)
    assert runs(elder.pid)


def test_we_and_those_above_us_are_never_touched() -> None:
    ours = [identity.identify(os.getpid()), identity.identify(os.getppid())]
    assert end_leftovers(RUN, [process for process in ours if process is not None], 2) == 0


def test_a_marker_reads_back_and_carries_the_outer_one() -> None:
    inner = Marker("r2", "h2", 7, outer="r1:h1:1:a:b")
    assert inner.value("d") == "r2:h2:7:d r1:h1:1:a:b"
    assert parse(inner.value("d")) == [Mark("r2", "h2", "7", "d"), Mark("r1", "h1", "1", "a:b")]
    assert parse("") == parse("x:y") == []
