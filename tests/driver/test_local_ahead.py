from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from interlock.dispatch.base import Job, Outcome, Request
from interlock.dispatch.pace import MOST
from interlock.dispatch.python import ahead as python_ahead
from interlock.model.states import Reason

Make = Callable[..., Any]

WORK = """
import os, pathlib, signal, sys, time

def note(context):
    item = context["item"]
    with open("began", "a") as file:
        file.write(f"{item['n']}\\n")
    if item.get("wait_for"):
        while not os.path.exists(item["wait_for"]):
            time.sleep(0.001)
    if item.get("say"):
        os.write(1, item["say"].encode())
        print(item["say"], file=sys.stderr)
    if item.get("fail"):
        raise ValueError("as asked")
    if item.get("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    return [item["n"], os.getpid()]
"""


@pytest.fixture(autouse=True)
def _any_pace_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not make lines shorter."""
    monkeypatch.setattr(python_ahead, "LOOK_US", 1e12)
    monkeypatch.setattr(python_ahead, "SLOW_US", 1e12)


def warm(functions: Any, places: int = 1, **options: Any) -> Job:
    """Let the executor see that the function is quick, in so many workers."""
    job: Job = functions.job("note", **options)
    functions.start(job, *[{"n": -1} for _ in range(places)])
    functions.outcomes(places)
    (functions.folder / "began").unlink()
    return job


def line_up(functions: Any, job: Job, *items: dict[str, Any]) -> list[Request]:
    """Start the first item in a worker, and the others in line behind it."""
    [first] = functions.start(job, items[0])
    places = functions.executor.capacity(job, 0, len(items) - 1)
    assert places == [first.process] * (len(items) - 1)
    behind = [functions.request(job, item, place, ahead=True) for item, place in zip(items[1:], places, strict=True)]
    functions.executor.start(behind)
    return [first, *behind]


def process_id(request: Request) -> int:
    assert request.process is not None
    return request.process.pid


def began(functions: Any) -> list[int]:
    path = functions.folder / "began"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def until_began(functions: Any, n: int) -> None:
    until = time.monotonic() + 30
    while n not in began(functions):
        assert time.monotonic() < until
        time.sleep(0.001)


def go(functions: Any) -> None:
    (functions.folder / "go").touch()


def test_a_function_that_was_not_seen_to_be_quick_gets_no_line(make_functions: Make) -> None:
    functions = make_functions(WORK)
    job = functions.job("note")
    functions.start(job, {"n": 0, "wait_for": "go"})
    assert functions.executor.capacity(job, 0, 5) == []
    assert functions.executor.ahead(functions.run_id) == {}
    go(functions)
    functions.outcomes(1)


def test_units_in_line_run_in_order_in_the_worker_they_wait_for(make_functions: Make) -> None:
    functions = make_functions(WORK)
    job = warm(functions)
    requests = line_up(functions, job, {"n": 0, "wait_for": "go"}, *[{"n": n} for n in range(1, 20)])
    state = functions.executor.ahead(functions.run_id)[0]
    assert (state.waiting, state.each) == (19, MOST)
    go(functions)
    found = functions.outcomes(20)
    assert began(functions) == list(range(20))
    assert {json.loads(found[request.dispatch].output)[1] for request in requests} == {process_id(requests[0])}
    assert functions.executor.ahead(functions.run_id)[0].waiting == 0


def test_no_line_is_longer_than_its_end_and_other_jobs_have_no_place_in_it(make_functions: Make) -> None:
    functions = make_functions(WORK)
    job = warm(functions)
    functions.start(job, {"n": 0, "wait_for": "go"})
    assert len(functions.executor.capacity(job, 0, 1_000)) == MOST
    assert functions.executor.capacity(job, 0, 1) == []
    functions.executor.start([])
    assert len(functions.executor.capacity(job, 0, 7)) == 7
    functions.executor.start([])
    assert functions.executor.capacity(functions.job("note", cwd="/"), 0, 7) == []
    go(functions)
    functions.outcomes(1)


def test_what_finds_no_line_is_given_back_and_takes_no_worker(make_functions: Make) -> None:
    functions = make_functions(WORK)
    job = warm(functions)
    [place] = functions.executor.capacity(job, 1)
    functions.executor.start([functions.request(job, {"n": 0}, place, ahead=True)])
    [outcome] = functions.outcomes(1).values()
    assert (outcome.status, outcome.error) == ("aborted", "called back before it began")
    assert began(functions) == []


def test_a_slow_unit_ends_the_lines_of_its_function(make_functions: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_ahead, "SLOW_US", 10_000)
    functions = make_functions(WORK + "\ndef slow(context):\n    time.sleep(0.03)\n")
    functions.run("slow")
    job = functions.job("slow")
    functions.start(job, 1)
    assert functions.executor.capacity(job, 0, 5) == []
    functions.outcomes(1)


def test_output_stays_with_its_unit(make_functions: Make) -> None:
    functions = make_functions(WORK)
    job = warm(functions)
    items: list[dict[str, Any]] = [{"n": n, **({"say": f"<{n}>" * (n % 5)} if n % 3 else {})} for n in range(60)]
    items[0]["wait_for"] = "go"
    requests = line_up(functions, job, *items)
    go(functions)
    found = functions.outcomes(len(items))
    log = functions.log_path.read_bytes()
    for request, item in zip(requests, items, strict=True):
        span = found[request.dispatch].log
        said = item.get("say", "")
        if not said:
            assert span is None
            continue
        text = log[span.offset : span.offset + span.length].decode()
        assert text.count(f"<{item['n']}>") == 2 * (item["n"] % 5)
        assert text.count("<") == 2 * (item["n"] % 5)


def test_more_output_than_a_pipe_holds_stays_with_its_unit(make_functions: Make) -> None:
    functions = make_functions(WORK)
    job = warm(functions, max_log_bytes=10_000_000)
    items = [{"n": n, "say": chr(97 + n) * 200_000} for n in range(4)]
    requests = line_up(functions, job, *items)
    found = functions.outcomes(4)
    log = functions.log_path.read_bytes()
    for n, request in enumerate(requests):
        span = found[request.dispatch].log
        text = log[span.offset : span.offset + span.length]
        assert [text.count(bytes([97 + other]) * 1_000) > 0 for other in range(4)] == [other == n for other in range(4)]


def test_nothing_in_line_begins_after_a_failure_until_it_was_looked_at(make_functions: Make) -> None:
    functions = make_functions(WORK)
    job = warm(functions)
    requests = line_up(functions, job, {"n": 0, "fail": True}, {"n": 1}, {"n": 2})
    found = functions.outcomes(1)
    assert found[requests[0].dispatch].reason is Reason.NON_ZERO_EXIT
    functions.executor.recall(functions.run_id)
    rest = functions.outcomes(2)
    assert {outcome.status for outcome in rest.values()} == {"aborted"}
    assert {outcome.error for outcome in rest.values()} == {"called back before it began"}
    assert began(functions) == [0]
    assert functions.run("note", {"n": 3})[0].status == "ok"


def test_the_line_goes_on_after_a_failure_that_halts_nothing(make_functions: Make) -> None:
    functions = make_functions(WORK)
    job = warm(functions)
    requests = line_up(functions, job, *[{"n": n, "fail": n % 3 == 0} for n in range(10)])
    found = functions.outcomes(10)
    assert [found[request.dispatch].status for request in requests] == ["ok" if n % 3 else "failed" for n in range(10)]
    assert began(functions) == list(range(10))


def test_items_too_big_for_the_lines_socket_are_sent_when_it_is_their_turn(make_functions: Make) -> None:
    functions = make_functions(WORK)
    job = warm(functions)
    sizes = [10, 300_000, 10, 100_000, 9_000, 10]
    requests = line_up(functions, job, *[{"n": n, "pad": "x" * size} for n, size in enumerate(sizes)])
    found = functions.outcomes(len(sizes))
    assert [json.loads(found[request.dispatch].output)[0] for request in requests] == list(range(len(sizes)))


def test_a_unit_that_is_slow_gives_its_line_to_free_workers(make_functions: Make) -> None:
    functions = make_functions(WORK)
    job = warm(functions, places=2)
    requests = line_up(functions, job, {"n": 0, "wait_for": "go"}, {"n": 1}, {"n": 2})
    found = functions.outcomes(2)
    assert {found[request.dispatch].status for request in requests[1:]} == {"aborted"}
    go(functions)
    assert functions.outcomes(1)[requests[0].dispatch].status == "ok"
    assert began(functions) == [0]


def test_a_worker_that_dies_fails_its_unit_and_gives_back_its_line(make_functions: Make) -> None:
    functions = make_functions(WORK)
    job = warm(functions)
    requests = line_up(functions, job, {"n": 0}, {"n": 1, "die": True}, {"n": 2}, {"n": 3, "pad": "x" * 20_000})
    found = functions.outcomes(4)
    ends = [(found[request.dispatch].status, found[request.dispatch].reason) for request in requests]
    assert ends == [
        ("ok", None),
        ("failed", Reason.KILLED),
        ("aborted", Reason.ABORTED),
        ("aborted", Reason.ABORTED),
    ]
    assert began(functions) == [0, 1]
    assert functions.run("note", {"n": 4})[0].status == "ok"


def test_a_timeout_ends_its_unit_alone(make_functions: Make) -> None:
    functions = make_functions(WORK)
    job = warm(functions, timeout_ms=2_000)
    requests = line_up(functions, job, {"n": 0}, {"n": 1, "wait_for": "never"}, {"n": 2})
    found = functions.outcomes(3)
    assert [found[request.dispatch].reason for request in requests] == [None, Reason.TIMEOUT, Reason.ABORTED]
    assert began(functions) == [0, 1]


@pytest.mark.parametrize("grace_s", [0.0, 5.0])
def test_a_cancel_begins_nothing_that_waits_in_line(make_functions: Make, grace_s: float) -> None:
    functions = make_functions(WORK)
    job = warm(functions)
    requests = line_up(functions, job, {"n": 0, "wait_for": "never"}, {"n": 1}, {"n": 2})
    until_began(functions, 0)
    functions.executor.cancel(None, grace_s)
    found: dict[str, Outcome] = functions.outcomes(3)
    assert {found[request.dispatch].status for request in requests} == {"aborted"}
    assert began(functions) == [0]


def test_a_worker_whose_line_was_called_back_still_stops_at_its_next_failure(make_functions: Make) -> None:
    functions = make_functions(WORK)
    job = warm(functions)
    line_up(functions, job, {"n": 0, "fail": True}, {"n": 1})
    functions.outcomes(1)
    functions.executor.recall(functions.run_id)
    again = line_up(functions, job, {"n": 2, "fail": True}, {"n": 3})
    found = functions.outcomes(2)
    if again[1].dispatch not in found:
        functions.executor.recall(functions.run_id)
        found |= functions.outcomes(1)
    assert [found[request.dispatch].status for request in again] == ["failed", "aborted"]
    assert began(functions) == [0, 2]
