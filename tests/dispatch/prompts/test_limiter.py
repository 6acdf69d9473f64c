"""Places of an engine, shared by threads, runs and processes; real processes hold and lose them here."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.dispatch.shop import until

from interlock.dispatch.base import EngineSettings
from interlock.dispatch.prompts.limiter import EngineLimit, Limiter, Place, Waiting, limits_folder
from interlock.dispatch.prompts.limiter_file import Lowered, SharedFile

HOLDER = """
import sys, pathlib
from interlock.dispatch.prompts.limiter import EngineLimit, Waiting
limit = EngineLimit(pathlib.Path(sys.argv[1]), "x", int(sys.argv[2]))
for _ in range(int(sys.argv[3])):
    assert limit.take(Waiting(lambda: False))
print("held", flush=True)
sys.stdin.read()
"""
TAKER = """
import sys, pathlib, time
from interlock.dispatch.prompts.limiter import EngineLimit, Waiting
limit = EngineLimit(pathlib.Path(sys.argv[1]), "x", 1)
print("ready", flush=True)
sys.stdin.readline()
times = []
for _ in range(15):
    place = limit.take(Waiting(lambda: False))
    times.append(time.monotonic())
    time.sleep(0.01)
    limit.give_back(place)
print(times[0], times[-1], flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limits" / "engine"


@pytest.fixture
def limits() -> Iterator[list[EngineLimit]]:
    """Limits that are closed at the end."""
    made: list[EngineLimit] = []
    yield made
    for limit in made:
        limit.close()


def opened(limits: list[EngineLimit], path: Path, concurrency: int | None) -> EngineLimit:
    limits.append(EngineLimit(path, "x", concurrency))
    return limits[-1]


def take(limit: EngineLimit) -> Place:
    place = limit.take(Waiting(lambda: False))
    assert place is not None
    return place


def take_now(limit: EngineLimit) -> Place | None:
    """Take a place if there is one at once."""
    looks = iter([False, False])
    return limit.take(Waiting(lambda: next(looks, True)))


def python(program: str, *args: object) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", program, *map(str, args)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def hear(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{word}\n"


def in_line(limit: EngineLimit, waiting: Waiting) -> bool:
    return waiting in limit._line  # noqa: SLF001 - nobody else tells who stands there


def test_no_more_places_than_the_concurrency_are_given(limits: list[EngineLimit], path: Path) -> None:
    limit = opened(limits, path, 2)
    first, second = take(limit), take(limit)
    assert take_now(limit) is None
    limit.give_back(first)
    assert take_now(limit) is not None
    assert {first.number, second.number} == {0, 1}


def test_two_runs_in_one_process_share_the_places(limits: list[EngineLimit], path: Path) -> None:
    one, other = opened(limits, path, 2), opened(limits, path, 2)
    place = take(one)
    take(other)
    assert (take_now(one), take_now(other)) == (None, None)
    one.give_back(place)
    assert take_now(other) is not None


def test_a_killed_holder_frees_its_places(limits: list[EngineLimit], path: Path) -> None:
    with python(HOLDER, path, 2, 2) as holder:
        hear(holder, "held")
        limit = opened(limits, path, 2)
        assert take_now(limit) is None
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert take(limit).number == 0


def test_who_waits_gets_the_place_that_another_process_frees(limits: list[EngineLimit], path: Path) -> None:
    with python(HOLDER, path, 1, 1) as holder:
        hear(holder, "held")
        limit = opened(limits, path, 1)
        found: list[Place] = []
        thread = threading.Thread(target=lambda: found.append(take(limit)))
        thread.start()
        assert not found
        assert holder.stdin is not None
        holder.stdin.close()
        thread.join(20)
        assert [place.number for place in found] == [0]


def test_two_busy_processes_take_turns(path: Path) -> None:
    with python(TAKER, path) as one, python(TAKER, path) as other:
        for process in (one, other):
            hear(process, "ready")
        for process in (one, other):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        spans = []
        for process in (one, other):
            assert process.stdout is not None
            spans.append([float(word) for word in process.stdout.readline().split()])
    (first_one, last_one), (first_other, last_other) = spans
    assert first_one < last_other
    assert first_other < last_one


def test_within_a_process_it_is_first_come_first_served(limits: list[EngineLimit], path: Path) -> None:
    limit = opened(limits, path, 1)
    held = take(limit)
    served: list[int] = []
    waiting = [Waiting(lambda: False) for _ in range(8)]

    def wait_for(number: int) -> None:
        place = limit.take(waiting[number])
        assert place is not None
        served.append(number)
        limit.give_back(place)

    threads = []
    for number in range(8):
        threads.append(threading.Thread(target=wait_for, args=(number,)))
        threads[-1].start()
        until(partial(in_line, limit, waiting[number]))
    limit.give_back(held)
    for thread in threads:
        thread.join(20)
    assert served == list(range(8))


def test_a_cancelled_wait_ends_at_once_and_leaves_no_gap(limits: list[EngineLimit], path: Path) -> None:
    limit = opened(limits, path, 1)
    held = take(limit)
    cancelled = threading.Event()
    waiting = Waiting(cancelled.is_set)
    found: list[Place | None] = []
    thread = threading.Thread(target=lambda: found.append(limit.take(waiting)))
    thread.start()
    cancelled.set()
    waiting.wake()
    thread.join(20)
    assert found == [None]
    limit.give_back(held)
    assert take_now(limit) is not None


def test_too_many_requests_halve_the_limit_once_for_all_that_were_under_way(
    limits: list[EngineLimit], path: Path
) -> None:
    limit = opened(limits, path, 8)
    places = [take(limit) for _ in range(8)]
    for place in places:
        limit.give_back(place, overloaded=True)
    again = [take_now(limit) for _ in range(5)]
    assert [place is not None for place in again] == [True, True, True, True, False]


def test_a_halved_limit_binds_other_processes_too(limits: list[EngineLimit], path: Path) -> None:
    limit, other = opened(limits, path, 4), opened(limits, path, 4)
    places = [take(limit) for _ in range(4)]
    limit.give_back(places[0], overloaded=True)
    limit.give_back(places[1])
    # two are still under way, which is all that is allowed now
    assert take_now(other) is None
    limit.give_back(places[2])
    assert take_now(other) is not None


def test_without_a_limit_an_overload_bounds_what_is_under_way(limits: list[EngineLimit], path: Path) -> None:
    limit = opened(limits, path, None)
    places = [take(limit) for _ in range(20)]
    limit.give_back(places.pop(), overloaded=True)
    while places:
        limit.give_back(places.pop())
    assert sum(take_now(limit) is not None for _ in range(12)) == 10


def test_good_answers_raise_the_limit_again_by_one_a_round(limits: list[EngineLimit], path: Path) -> None:
    limit = opened(limits, path, 8)
    take(limit)
    shared = SharedFile(path)
    now = time.monotonic()
    with shared.alone():
        shared.set_lowered(Lowered(limit=2, changed_at=now - 5, cut_at=now - 5))
    for _ in range(2):
        limit.give_back(take(limit), answered=True)
    found = shared.lowered()
    assert found is not None
    assert (found.limit, found.answered) == (3, 0)
    for _ in range(9):
        limit.give_back(take(limit), answered=True)
    found = shared.lowered()
    shared.close()
    assert found is not None
    # many answers in no time are one round: the engine has not been seen to bear more yet
    assert found.limit == 3


def test_a_limit_that_is_whole_again_is_forgotten(limits: list[EngineLimit], path: Path) -> None:
    limit = opened(limits, path, 3)
    shared = SharedFile(path)
    now = time.monotonic()
    with shared.alone():
        shared.set_lowered(Lowered(limit=2, changed_at=now - 5, cut_at=now - 5, answered=1))
    limit.give_back(take(limit), answered=True)
    assert shared.lowered() is None
    shared.close()


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", b"\x00" * 64, b'{"limit":0,"changed_at":0,"cut_at":0}', b'{"limit":"x"}', b"[]", b'{"limit":1'],
)
def test_a_corrupt_file_reads_as_no_lowered_limit(limits: list[EngineLimit], path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    limit = opened(limits, path, 2)
    first = take(limit)
    take(limit)
    limit.give_back(first, overloaded=True)
    assert take_now(limit) is None


def test_an_old_limit_and_one_of_another_boot_say_nothing(path: Path) -> None:
    shared = SharedFile(path)
    for changed_at in (time.monotonic() - 601, time.monotonic() + 1_000):
        with shared.alone():
            shared.set_lowered(Lowered(limit=1, changed_at=changed_at, cut_at=changed_at))
        assert shared.lowered() is None
    shared.close()


def test_where_no_file_can_be_had_the_limit_holds_within_the_process(limits: list[EngineLimit], path: Path) -> None:
    path.mkdir(parents=True)
    limit = opened(limits, path, 2)
    assert limit.notice == (f"the limit of engine `x` holds for this run alone: {path} cannot be used (Is a directory)")
    first = take(limit)
    take(limit)
    assert take_now(limit) is None
    limit.give_back(first, overloaded=True)
    assert take_now(limit) is None


def test_engines_are_told_apart_by_name_address_and_key(tmp_path: Path) -> None:
    limiter = Limiter(tmp_path)
    base: dict[str, Any] = {"name": "a", "kind": "llm", "driver": "openai", "base_url": "http://x", "api_key": "K"}
    for change in ({}, {"name": "b"}, {"name": "c", "base_url": "http://y"}, {"name": "d", "api_key": None}):
        limiter.of(EngineSettings(**(base | change)))
    assert limiter.of(EngineSettings(**base)) is limiter.of(EngineSettings(**base))
    limiter.close()
    assert len(list(tmp_path.iterdir())) == 4


def test_limits_lie_in_the_users_state_folder() -> None:
    assert limits_folder({"HOME": "/home/u"}) == Path("/home/u/.local/state/interlock/limits")
    assert limits_folder({"HOME": "/home/u", "XDG_STATE_HOME": "/s"}) == Path("/s/interlock/limits")
    # the standard wants a relative path ignored
    assert limits_folder({"HOME": "/home/u", "XDG_STATE_HOME": "s"}) == Path("/home/u/.local/state/interlock/limits")
