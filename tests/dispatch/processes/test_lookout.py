"""What cleared its environment, took a session of its own and lost its parent is known if it was seen before."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.dispatch.processes.driver import Driver
from tests.dispatch.shop import Shop, marked, runs, until

from interlock.dispatch.base import Request
from interlock.dispatch.processes import lookout, reaper_main
from interlock.dispatch.processes.identity import read_stat
from interlock.dispatch.processes.lookout import Lookout, remembered
from interlock.dispatch.processes.reaper_main import Known
from interlock.model.states import Reason

OUTSIDE = '-c "echo \\$\\$ > escaped.part; mv escaped.part escaped; exec sleep 600"'
# the one in between ends when it is let go: until then the escaped one has a parent that is known
ESCAPE = f"""
bash -c 'setsid env -i sh {OUTSIDE} & until test -e let; do sleep 0.01; done' &
until test -e escaped; do sleep 0.01; done
"""


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout, "EVERY_S", 0.02)


def pid_in(path: Path) -> int:
    until(path.exists)
    return int(path.read_text())


def is_known(pid: int) -> bool:
    return pid in {known for known, _ in remembered(lambda _: True)}


def escape(shop: Shop) -> int:
    """Wait until the escaped one was seen, then until it is nobody's child any more."""
    pid = pid_in(shop.folder / "escaped")
    until(lambda: is_known(pid))
    (shop.folder / "let").touch()
    until(lambda: (stat := read_stat(pid)) is not None and not is_known(stat.ppid))
    return pid


@pytest.mark.usefixtures("often")
def test_it_ends_with_the_step_of_its_attempt_and_with_no_other(shop: Shop) -> None:
    request = shop.start(ESCAPE + "until test -e let; do sleep 0.01; done")
    pid = escape(shop)
    other = shop.start("sleep 600")
    assert shop.outcome(request).status == "ok"
    shop.started(other)
    assert shop.runner.end_strays(other.job.key + " of another step") == 0
    assert runs(pid)
    assert shop.runner.end_strays(request.job.key) == 1
    assert not runs(pid)
    assert runs(shop.started(other).process.pid)


@pytest.mark.usefixtures("often")
def test_it_ends_with_its_attempt_when_that_is_ended(shop: Shop) -> None:
    request = shop.start(ESCAPE + "sleep 600")
    pid = escape(shop)
    shop.runner.cancel([request.dispatch], 5.0)
    assert shop.outcome(request).status == "aborted"
    assert not runs(pid)


@pytest.mark.usefixtures("often")
def test_it_ends_with_a_timeout(shop: Shop) -> None:
    request = shop.start(ESCAPE + "sleep 600", timeout_ms=3_000)
    pid = escape(shop)
    assert shop.outcome(request).reason is Reason.TIMEOUT
    assert not runs(pid)


@pytest.mark.usefixtures("often")
def test_it_ends_with_the_driver_even_if_no_step_is_asked_about(shop: Shop) -> None:
    request = shop.start(ESCAPE + "until test -e let; do sleep 0.01; done")
    pid = escape(shop)
    assert shop.outcome(request).status == "ok"
    shop.close()
    assert not runs(pid)
    assert remembered(lambda _: True) == []


@pytest.mark.usefixtures("often")
def test_its_own_children_end_with_it(shop: Shop) -> None:
    (shop.folder / "inner").write_text(
        "setsid sleep 600 &\necho $! > below.part; mv below.part below\necho $$ > escaped.part; mv escaped.part escaped; wait"
    )
    request = shop.start(ESCAPE.replace(OUTSIDE, "./inner") + "until test -e let; do sleep 0.01; done")
    below = pid_in(shop.folder / "below")
    pid = escape(shop)
    assert shop.outcome(request).status == "ok"
    shop.runner.end_strays(request.job.key)
    assert not runs(pid)
    assert not runs(below)


DRIVEN = """
pid_file = folder / "escaped"
while not pid_file.exists():
    time.sleep(0.01)
pid = int(pid_file.read_text())
known = lambda pid: pid in {known for known, _ in lookout.remembered(lambda _: True)}
while not known(pid):
    time.sleep(0.01)
(folder / "let").touch()
while known(read_stat(pid).ppid):
    time.sleep(0.01)
(folder / "ready").touch()
"""


def test_it_ends_when_its_driver_is_killed(tmp_path: Path, run_id: str, drive: Callable[..., Driver]) -> None:
    driver = drive(tmp_path, ESCAPE + "sleep 600", then=DRIVEN)
    until((tmp_path / "ready").exists)
    pid = pid_in(tmp_path / "escaped")
    assert runs(pid)
    driver.kill()
    until(lambda: not runs(pid) and not marked(run_id), 10)


class Kept:
    """A lookout that is asked to look, and what it told."""

    def __init__(self, prefix: str) -> None:
        self.told: list[Known] = []
        self.busy = False
        self.lookout = Lookout(prefix, self._tell, lambda: False)

    def _tell(self, known: Sequence[Known]) -> bool:
        self.told += [] if self.busy else list(known)
        return not self.busy

    def look(self) -> list[int]:
        self.lookout.look()
        return sorted(pid for pid, _ in self.lookout.remembered(lambda _: True))


@pytest.fixture
def start() -> Iterator[Callable[..., int]]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(*argv: str, mark: str = "") -> int:
        env = {**os.environ, **({"INTERLOCK_MARKER": mark} if mark else {})}
        started.append(subprocess.Popen(argv, env=env, start_new_session=True))
        # in the middle of its exec a process has no environment
        until(lambda: reaper_main.marker_of(started[-1].pid) == mark.encode())
        return started[-1].pid

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_processes_of_others_are_never_taken_in(start: Callable[..., int]) -> None:
    kept = Kept("me:h:1:")
    start("sleep", "600")
    start("sleep", "600", mark="me:h:10:d")
    start("sleep", "600", mark="you:h:1:d me:h:2:d")
    mine = start("sleep", "600", mark="inner:h:1:d me:h:1:d")
    assert [kept.look(), kept.look()] == [[mine], [mine]]
    assert [mark for mark in (b"me:h:1:d", b"inner:h:1:d") if kept.lookout.remembered(mark.__eq__)] == [b"me:h:1:d"]


def test_what_is_told_is_told_once_and_again_only_when_it_could_not_be(start: Callable[..., int]) -> None:
    kept = Kept("me:h:1:")
    kept.busy = True
    first = start("sleep", "600", mark="me:h:1:d")
    kept.look()
    assert kept.told == []
    kept.busy = False
    kept.look()
    second = start("sleep", "600", mark="me:h:1:d")
    kept.look()
    kept.look()
    assert [pid for pid, _ in kept.told] == [first, second]
    stats = [read_stat(pid) for pid in (first, second)]
    assert [started for _, started in kept.told] == [b"%d" % stat.start_ticks for stat in stats if stat]


def test_one_that_is_seen_before_its_exec_is_taken_in_after_it(start: Callable[..., int], tmp_path: Path) -> None:
    kept = Kept("me:h:1:")
    script = f"until test -e {tmp_path}/go; do sleep 0.01; done; exec env INTERLOCK_MARKER=me:h:1:d sleep 600"
    pid = start("sh", "-c", script)
    assert kept.look() == []
    (tmp_path / "go").touch()
    until(lambda: Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x00600\x00")
    until(lambda: reaper_main.marker_of(pid))
    assert kept.look() == [pid]


def test_what_has_gone_is_forgotten(start: Callable[..., int]) -> None:
    kept = Kept("me:h:1:")
    pid = start("sleep", "600", mark="me:h:1:d")
    assert kept.look() == [pid]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert kept.look() == []


def test_what_was_taken_in_stays_while_no_file_is_left_to_look_with(start: Callable[..., int]) -> None:
    kept = Kept("me:h:1:")
    pid = start("sleep", "600", mark="me:h:1:d")
    assert kept.look() == [pid]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        found = kept.look()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found == [pid]


def test_what_may_not_be_ended_is_not_waited_for(start: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    stat = read_stat(start("sleep", "600"))
    assert stat is not None
    asked: list[int] = []

    def refuse(pid: int, _started: bytes, _number: signal.Signals) -> bool:
        asked.append(pid)
        return False

    monkeypatch.setattr(reaper_main, "send", refuse)
    assert reaper_main.sweep(lambda _: False, 600.0, known=[(stat.pid, b"%d" % stat.start_ticks)]) == 0
    assert asked == [stat.pid]


def test_a_reused_pid_is_not_what_was_known(start: Callable[..., int]) -> None:
    pid = start("sleep", "600")
    assert reaper_main.sweep(lambda _: False, known=[(pid, b"1")]) == 0
    assert runs(pid)


def test_there_is_no_more_than_one_look_a_second(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []
    monkeypatch.setattr(Lookout, "look", looks.append)
    began = time.monotonic()
    requests: list[Request] = [shop.start("true") for _ in range(20)]
    assert {shop.outcome(request).status for request in requests} == {"ok"}
    shop.close()
    assert len(looks) <= time.monotonic() - began
