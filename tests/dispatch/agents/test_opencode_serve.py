"""`opencode serve` as a real process with real HTTP, from the prompt to the outcome."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.dispatch.agents.desk import Desk
from tests.dispatch.shop import marked, until

from interlock.dispatch.base import EngineSettings, Outcome, Started
from interlock.model.events import Usage
from interlock.model.states import Reason

FAKE = (sys.executable, str(Path(__file__).with_name("fake_opencode.py")))


@pytest.fixture
def open_desk(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(**settings: Any) -> Desk:
        made.append(Desk(tmp_path, **settings))
        return made[-1]

    yield make
    for desk in made:
        desk.close()
    assert [pid for desk in made for pid in marked(desk.marker.run_id)] == []


@pytest.fixture
def desk(open_desk: Callable[..., Desk]) -> Desk:
    return open_desk()


def engine(*args: str) -> EngineSettings:
    return EngineSettings(name="coder", kind="agent", driver="opencode-serve", command=FAKE, args=args)


def ask(desk: Desk, prompt: str, settings: EngineSettings | None = None, **changes: Any) -> Outcome:
    return desk.ask(settings or engine(), prompt, model="fake/m-1", **changes).outcome()


def sent(desk: Desk) -> int:
    """How many prompts the server has taken, this process and earlier ones together."""
    stored = json.loads((desk.folder / "sessions.json").read_text("utf-8"))
    return sum(m["info"]["role"] == "user" for s in stored.values() for m in s["messages"])


def test_one_server_answers_all_prompts_of_a_folder(desk: Desk) -> None:
    asked = [desk.ask(engine(), f"hello {number}") for number in range(5)]
    assert sorted(one.outcome().output for one in asked) == [b"echo: hello %d" % n for n in range(5)]
    assert len({r.process for r in desk.reports if isinstance(r, Started)}) == 1


def test_no_server_is_started_when_none_is_needed(desk: Desk) -> None:
    desk.close()
    assert not list((desk.folder / "scratch").rglob("helper*"))


def test_text_session_model_and_usage_are_told(desk: Desk) -> None:
    outcome = ask(desk, "hello")
    assert (outcome.status, outcome.output) == ("ok", b"echo: hello")
    assert outcome.usage == Usage(input_tokens=8, output_tokens=2, cached_tokens=1, reasoning_tokens=0)
    assert outcome.answered_by is not None
    assert outcome.answered_by.model == "m-1"
    again = ask(desk, "more", session=outcome.answered_by.session)
    assert again.answered_by is not None
    assert again.answered_by.session == outcome.answered_by.session


def test_a_session_that_is_gone_is_started_anew_and_said(desk: Desk) -> None:
    outcome = ask(desk, "more", session="ses_gone")
    assert outcome.notices == ("session ses_gone of engine `coder` is gone; a new one was started",)
    assert outcome.output == b"echo: more"


def test_an_answer_that_a_dead_driver_paid_for_is_found_again(open_desk: Callable[..., Desk]) -> None:
    first = open_desk(run_id="run-again")
    ask(first, "hello", key="unit-1")
    first.close()
    second = open_desk(run_id="run-again")
    outcome = ask(second, "hello", key="unit-1")
    assert outcome.output == b"echo: hello"
    assert outcome.notices == ("engine `coder`: a prompt sent earlier was found again, not sent anew",)
    assert sent(second) == 1


def test_a_retry_in_the_same_driver_asks_anew(desk: Desk) -> None:
    ask(desk, "hello", key="unit-1")
    assert ask(desk, "hello", key="unit-1").notices == ()
    assert sent(desk) == 2


def test_what_failed_or_was_cut_off_before_is_sent_anew(open_desk: Callable[..., Desk]) -> None:
    first = open_desk(run_id="run-anew")
    ask(first, "stop length", key="unit-1")
    ask(first, "hang", key="unit-2", timeout_ms=1_000)
    first.close()
    second = open_desk(run_id="run-anew")
    ask(second, "stop length", key="unit-1")
    ask(second, "hang", key="unit-2", timeout_ms=1_000)
    assert sent(second) == 4


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("429 slow down", Reason.LLM_RATE_LIMIT),
        ("fake error 500", Reason.LLM_OVERLOADED),
        ("something else", Reason.LLM_OVERLOADED),
    ],
)
def test_a_call_that_would_be_repeated_without_end_fails_at_once(desk: Desk, message: str, reason: Reason) -> None:
    outcome = ask(desk, f"retry {message}")
    assert (outcome.status, outcome.reason, outcome.error, outcome.answered) == ("failed", reason, message, True)
    assert outcome.retry_after_ms is not None
    assert 3_000 < outcome.retry_after_ms <= 7_000
    assert (desk.cwd / "aborted").exists()


def test_an_error_has_the_reason_of_its_status(desk: Desk) -> None:
    said = json.dumps({"message": "no", "statusCode": 401})
    outcome = ask(desk, f"error {said}")
    assert (outcome.reason, outcome.error) == (Reason.LLM_AUTH, "no")


def test_a_permission_is_refused_and_named_or_given_with_auto(desk: Desk) -> None:
    outcome = ask(desk, "permission external_directory")
    assert outcome.error == (
        "the agent was refused tools that it asked for: `external_directory`; allow them by the engine's `args`"
    )
    assert ask(desk, "permission external_directory", engine("--auto")).output == b"done"


def test_an_ended_prompt_is_aborted(desk: Desk) -> None:
    outcome = ask(desk, "hang", idle_timeout_ms=1_000)
    assert (outcome.reason, outcome.answered) == (Reason.IDLE_TIMEOUT, False)
    assert (desk.cwd / "aborted").exists()
    asked = desk.ask(engine(), "hang")
    until(lambda: sent(desk) == 2)
    asked.attempt.cancel(5.0)
    assert asked.outcome().status == "aborted"
    assert ask(desk, "hello").output == b"echo: hello"


def test_a_server_that_does_not_obey_is_killed_and_the_next_prompt_gets_a_new_one(desk: Desk) -> None:
    asked = desk.ask(engine(), "stubborn")
    until(lambda: (desk.folder / "sessions.json").exists() and sent(desk) == 1)
    began = time.monotonic()
    asked.attempt.cancel(0.5)
    assert asked.outcome().status == "aborted"
    assert time.monotonic() - began < 20
    assert ask(desk, "hello").output == b"echo: hello"
    assert len({r.process for r in desk.reports if isinstance(r, Started)}) == 2


def test_a_server_that_dies_in_the_middle_fails_the_prompt_and_is_replaced(desk: Desk) -> None:
    outcome = ask(desk, "exit")
    assert (outcome.reason, outcome.answered) == (Reason.KILLED, False)
    assert outcome.error.startswith("`opencode serve` ended in the middle: ")
    assert ask(desk, "hello").output == b"echo: hello"


def test_a_server_that_does_not_come_up_says_why(desk: Desk) -> None:
    outcome = ask(desk, "hello", engine("--broken"))
    assert (outcome.reason, outcome.answered) == (Reason.SPAWN_FAILED, True)
    assert outcome.error.endswith("did not come up: no such flag")
