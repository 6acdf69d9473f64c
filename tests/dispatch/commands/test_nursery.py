from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.dispatch.shop import PATIENCE_S, Shop, marked, runs, until

from interlock.dispatch.base import Outcome, Started
from interlock.dispatch.commands.supervisor import Supervisor
from interlock.model.plan import Command
from interlock.model.states import Reason


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop whose thread polls only where a test says so."""
    made = Shop(tmp_path, pumped=True)
    try:
        yield made
    finally:
        made.close()
        assert marked(made.marker.run_id) == []


def unpolled(shop: Shop) -> Outcome:
    """Return the next outcome without polling once."""
    while True:
        report = shop.reports.get(timeout=PATIENCE_S)
        shop.seen.append(report)
        if isinstance(report, Outcome):
            return report


def test_a_command_ends_though_the_polling_thread_never_polls(shop: Shop) -> None:
    shop.start("echo hello")
    outcome = unpolled(shop)
    assert (outcome.status, outcome.output) == ("ok", b"hello\n")
    assert [type(report) for report in shop.seen] == [Started, Outcome]


def test_a_time_limit_is_kept_though_the_polling_thread_never_polls(shop: Shop) -> None:
    shop.start("sleep 600", timeout_ms=1_000)
    outcome = unpolled(shop)
    assert (outcome.reason, outcome.answered) == (Reason.TIMEOUT, False)
    assert outcome.process is not None
    assert not runs(outcome.process.pid)


def test_every_attempt_after_a_pause_is_taken_over_as_well(shop: Shop) -> None:
    for _ in range(3):
        assert shop.run("true").status == "ok"
        time.sleep(0.25)  # longer than the guard looks before it rests
        shop.start("sleep 0.2; echo done")
        assert unpolled(shop).output == b"done\n"


def test_a_start_is_told_before_the_end_and_once(shop: Shop) -> None:
    for command in ("true", "sleep 0.05", "sleep 0.4"):
        shop.seen.clear()
        request = shop.start(command)
        outcome = shop.outcome(request)
        started, ended = shop.seen
        assert isinstance(started, Started)
        assert ended is outcome
        assert started.process == outcome.process


def test_the_start_of_one_that_lasts_is_told_while_it_is_young(shop: Shop) -> None:
    request = shop.start("sleep 600")
    began = time.monotonic()
    shop.started(request)
    assert time.monotonic() - began < PATIENCE_S
    shop.runner.cancel([request.dispatch], 0.0)
    assert shop.outcome(request).reason is Reason.ABORTED


def test_more_than_a_pipe_holds_arrives_from_a_command_that_is_over_at_once(shop: Shop) -> None:
    outcome = shop.run("head -c 900000 /dev/zero; head -c 100000 /dev/zero >&2", max_result_bytes=1_000_000)
    assert outcome.output == bytes(900_000)
    assert outcome.log is not None
    assert outcome.log.length > 1_000_000


def test_what_a_leader_wrote_just_before_its_end_is_read_and_a_held_pipe_waited_for_no_longer_than_usual(
    shop: Shop,
) -> None:
    began = time.monotonic()
    outcome = shop.run("head -c 60000 /dev/zero; setsid sleep 5 & disown; exit 0")
    assert (outcome.status, len(outcome.output)) == ("ok", 60_000)
    assert time.monotonic() - began < 4


def test_many_at_once_end_each_in_one_outcome(shop: Shop) -> None:
    requests = [shop.start(Command(argv=("echo", str(number)))) for number in range(100)]
    for number, request in enumerate(requests):
        assert shop.outcome(request).output == f"{number}\n".encode()
    assert shop.runner.under_way == 0
    dispatches = [report.dispatch for report in shop.seen if isinstance(report, Outcome)]
    assert sorted(dispatches) == sorted(request.dispatch for request in requests)


def test_what_had_exited_before_it_was_cancelled_is_done(shop: Shop) -> None:
    request = shop.start("echo $$ > pid; echo out")
    pid = shop.folder / "pid"
    while not (pid.exists() and pid.read_text(encoding="utf-8").strip()):
        time.sleep(0.001)
    while runs(int(pid.read_text(encoding="utf-8"))):
        time.sleep(0.001)
    shop.runner.cancel([request.dispatch], 5.0)
    outcome = shop.outcome(request)
    assert (outcome.status, outcome.exit_code, outcome.output) == ("ok", 0, b"out\n")


def test_a_cancel_of_a_young_one_ends_its_whole_tree(shop: Shop) -> None:
    request = shop.start(f"setsid sleep 600 & echo $! > {shop.folder}/pid; wait")
    pid = int(until(lambda: _read(shop.folder / "pid")))
    shop.runner.cancel([request.dispatch], 0.0)
    assert shop.outcome(request).status == "aborted"
    assert not runs(pid)


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def test_a_program_that_is_still_written_is_tried_again_elsewhere(shop: Shop) -> None:
    script = shop.folder / "script"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o700)
    writing = os.open(script, os.O_WRONLY)
    began = time.monotonic()
    request = shop.start(Command(argv=(str(script),)))
    assert time.monotonic() - began < 0.4, "start waits for nobody"
    os.close(writing)
    assert shop.outcome(request).output == b"ran\n"


@pytest.mark.parametrize("method", ["begin", "attach", "take", "_outcome"])
def test_a_fault_of_ours_is_an_outcome_and_leaves_no_process(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(Supervisor, method, broken)
    outcome = shop.run("true")
    assert outcome.reason is Reason.DISPATCH_ERROR
    assert outcome.error == "interlock failed to carry out the attempt: RuntimeError: a fault"
    assert not outcome.answered
    assert shop.runner.under_way == 0


def test_what_was_said_of_an_earlier_descriptor_of_the_number_ends_no_command(shop: Shop) -> None:
    """As when one command ended, and the next got its descriptor's number, between a poll and the look at what it gave."""
    nursery = shop.runner._nursery  # noqa: SLF001 - the moment can't be had from outside
    assert nursery is not None
    request = shop.start("sleep 0.05; echo done")
    until(lambda: bool(nursery._by_fd))  # noqa: SLF001 - as above
    for fd in list(nursery._by_fd):  # noqa: SLF001 - as above
        assert nursery.on_event(fd)
    outcome = shop.outcome(request)
    assert (outcome.status, outcome.reason, outcome.output) == ("ok", None, b"done\n")
