from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.dispatch.shop import Shop, marked, until

from interlock.dispatch.base import Job, Outcome, Request
from interlock.dispatch.commands import lines as command_lines
from interlock.dispatch.pace import MOST
from interlock.model.states import Reason

NOTE = "echo $INTERLOCK_ITEM >> began; case $INTERLOCK_ITEM in *w) while [ ! -e go ]; do sleep 0.01; done;; *f) exit 1;; esac"


@pytest.fixture(autouse=True)
def _any_pace_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not make lines shorter."""
    monkeypatch.setattr(command_lines, "LOOK_MS", 1e12)
    monkeypatch.setattr(command_lines, "SLOW_MS", 1e12)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path, pumped=True)
    yield made
    made.close()
    assert marked(made.marker.run_id) == []


def ask(shop: Shop, job: Job, item: str, *, ahead: bool = False) -> Request:
    request = shop.request(job, item_json=f'"{item}"'.encode(), index=0, ahead=ahead)
    shop.runner.start(request)
    return request


def warm(shop: Shop, command: str = NOTE) -> Job:
    """Let the runner see that the job's commands are quick."""
    job = shop.job(command)
    shop.outcome(ask(shop, job, "warm"))
    return job


def line_up(shop: Shop, job: Job, *items: str) -> list[Request]:
    """Start the first, and the others in line behind it."""
    first = ask(shop, job, items[0])

    def has_begun() -> bool:
        shop.pump(0.001)
        return items[0] in began(shop)

    until(has_begun)
    assert shop.runner.offer(job, len(items) - 1, 0) == len(items) - 1
    return [first, *(ask(shop, job, item, ahead=True) for item in items[1:])]


def began(shop: Shop) -> list[str]:
    path = shop.folder / "began"
    return path.read_text().split() if path.exists() else []


def go(shop: Shop) -> None:
    (shop.folder / "go").touch()


def called_back(outcome: Outcome) -> bool:
    return (outcome.status, outcome.reason, outcome.error, outcome.process) == (
        "aborted",
        Reason.ABORTED,
        "called back before it began",
        None,
    )


def test_a_command_that_was_not_seen_to_be_quick_gets_no_line(shop: Shop) -> None:
    job = shop.job(NOTE)
    first = ask(shop, job, "1w")
    assert shop.runner.offer(job, 5, 0) == 0
    assert shop.runner.ahead(job.run_id) == {}
    go(shop)
    shop.outcome(first)
    assert shop.runner.offer(job, 5, 1) == 5


def test_those_in_line_begin_one_by_one_in_the_place_of_one_that_ended(shop: Shop) -> None:
    job = warm(shop)
    items = ["0w", *(str(n) for n in range(1, 20))]
    requests = line_up(shop, job, *items)
    state = shop.runner.ahead(job.run_id)[job.step]
    assert (state.waiting, state.each, shop.runner.waiting, shop.runner.under_way) == (19, MOST, 19, 1)
    go(shop)
    assert {shop.outcome(request).status for request in requests} == {"ok"}
    assert began(shop) == ["warm", *items]
    assert (shop.runner.waiting, shop.runner.under_way) == (0, 0)


def test_no_line_is_longer_than_its_end_and_other_jobs_have_no_place_in_it(shop: Shop) -> None:
    job = warm(shop)
    first = ask(shop, job, "0w")
    assert shop.runner.offer(job, 1_000, 0) == MOST
    assert shop.runner.offer(job, 1_000, 2) == 3 * MOST
    assert shop.runner.offer(shop.job(NOTE), 7, 0) == 0
    waiting = [ask(shop, job, str(n), ahead=True) for n in range(MOST)]
    assert shop.runner.offer(job, 1, 0) == 0
    go(shop)
    for request in (first, *waiting):
        shop.outcome(request)


def test_a_check_has_no_line_and_says_nothing_of_that_of_its_step(shop: Shop) -> None:
    job = warm(shop)
    requests = line_up(shop, job, "0w", "1")
    check = shop.job("exit 3", step=job.step, accepts_any_exit=True)
    assert shop.outcome(ask(shop, check, "x")).exit_code == 3
    assert shop.runner.offer(check, 5, 1) == 0
    assert shop.runner.ahead(job.run_id)[job.step].waiting == 1
    go(shop)
    for request in requests:
        shop.outcome(request)


def test_what_finds_nothing_to_wait_for_is_given_back(shop: Shop) -> None:
    job = warm(shop)
    assert called_back(shop.outcome(ask(shop, job, "1", ahead=True)))
    assert called_back(shop.outcome(ask(shop, shop.job(NOTE), "1", ahead=True)))
    assert began(shop) == ["warm"]


def test_a_slow_command_ends_the_line_of_its_job_and_quick_ones_bring_it_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = warm(shop)
    monkeypatch.setattr(command_lines, "SLOW_MS", -1)
    assert shop.runner.offer(job, 5, 1) == 0
    assert shop.runner.ahead(job.run_id)[job.step].each == 0
    monkeypatch.setattr(command_lines, "SLOW_MS", 1e12)
    assert shop.runner.offer(job, 5, 1) == 5


def test_a_command_that_lasts_sends_the_line_of_its_job_back(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    job = warm(shop)
    requests = line_up(shop, job, "0w", "1", "2")
    monkeypatch.setattr(command_lines, "SLOW_MS", 50)
    assert all(called_back(shop.outcome(request)) for request in requests[1:])
    assert shop.runner.offer(job, 5, 0) == 0
    go(shop)
    assert shop.outcome(requests[0]).status == "ok"


def test_after_a_failure_nothing_begins_in_that_place_until_it_was_looked_at(shop: Shop) -> None:
    job = warm(shop)
    requests = line_up(shop, job, "0w", "1f", "2", "3")
    go(shop)
    assert shop.outcome(requests[1]).reason is Reason.NON_ZERO_EXIT
    shop.pump(0.05)
    assert began(shop) == ["warm", "0w", "1f"]
    # its place is not free: the one that stepped up has it
    assert shop.runner.ahead(job.run_id)[job.step].waiting == 1
    shop.runner.go_on()
    assert [shop.outcome(request).status for request in requests[2:]] == ["ok", "ok"]


def test_a_line_that_is_called_back_ends_before_it_began_stopped_or_not(shop: Shop) -> None:
    job = warm(shop)
    requests = line_up(shop, job, "0w", "1f", "2", "3")
    go(shop)
    shop.outcome(requests[1])
    shop.runner.recall("another run")
    shop.runner.recall(job.run_id)
    assert all(called_back(shop.outcome(request)) for request in requests[2:])
    shop.runner.go_on()
    shop.pump(0.05)
    assert began(shop) == ["warm", "0w", "1f"]
    assert shop.runner.offer(job, 5, 0) == 0


def test_one_in_line_can_be_cancelled_alone(shop: Shop) -> None:
    job = warm(shop)
    requests = line_up(shop, job, "0w", "1", "2", "3")
    shop.runner.cancel([requests[2].dispatch], 5.0)
    assert called_back(shop.outcome(requests[2]))
    go(shop)
    assert [shop.outcome(request).status for request in requests] == ["ok", "ok", "aborted", "ok"]


def test_closing_ends_those_in_line_too(shop: Shop) -> None:
    job = warm(shop)
    requests = line_up(shop, job, "0w", "1", "2")
    shop.runner.close()
    assert [shop.outcome(request).status for request in requests] == ["aborted"] * 3
    assert began(shop) == ["warm", "0w"]
