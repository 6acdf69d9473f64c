from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from interlock.dispatch.agents.base import Answer
from interlock.dispatch.agents.verdict import conclude
from interlock.model.events import Answered, Usage
from interlock.model.outcome import Outcome
from interlock.model.states import Reason

LIMIT = 1_000


def ended(reason: Reason | None = None, **changes: Any) -> Outcome:
    status: Literal["ok", "failed", "aborted"] = "failed"
    if reason in (None, Reason.ABORTED):
        status = "ok" if reason is None else "aborted"
    unsure = reason in {Reason.TIMEOUT, Reason.IDLE_TIMEOUT, Reason.KILLED, Reason.ABORTED}
    defaults: dict[str, Any] = {"error": "as the process ended", "answered": not unsure}
    return Outcome(dispatch="d", status=status, reason=reason, **(defaults | changes))


def test_an_answer_is_an_answer_whatever_the_exit_code() -> None:
    outcome = conclude(
        ended(Reason.NON_ZERO_EXIT, exit_code=7), Answer(text="yes"), settled=True, max_result_bytes=LIMIT
    )
    assert (outcome.status, outcome.reason, outcome.error, outcome.output) == ("ok", None, "", b"yes")
    assert outcome.exit_code == 7


def test_exit_zero_does_not_make_a_failure_a_success() -> None:
    answer = Answer(reason=Reason.LLM_AUTH, error="no", acted=False)
    outcome = conclude(ended(), answer, settled=True, max_result_bytes=LIMIT)
    assert (outcome.status, outcome.reason, outcome.error, outcome.answered) == ("failed", Reason.LLM_AUTH, "no", True)


@pytest.mark.parametrize("reason", [Reason.TIMEOUT, Reason.ABORTED, Reason.KILLED])
def test_after_the_last_event_any_end_is_a_success(reason: Reason) -> None:
    outcome = conclude(ended(reason), Answer(text="yes"), settled=True, max_result_bytes=LIMIT)
    assert (outcome.status, outcome.reason, outcome.answered, outcome.output) == ("ok", None, True, b"yes")


@pytest.mark.parametrize("reason", [Reason.TIMEOUT, Reason.IDLE_TIMEOUT, Reason.ABORTED, Reason.KILLED])
def test_before_the_last_event_our_own_end_decides_and_what_is_known_survives(reason: Reason) -> None:
    answer = Answer(
        reason=Reason.LLM_BAD_RESPONSE,
        error="no last event",
        session="s-1",
        model="m-1",
        usage=Usage(input_tokens=1),
        notices=("n",),
    )
    outcome = conclude(ended(reason), answer, settled=False, max_result_bytes=LIMIT)
    assert (outcome.reason, outcome.error, outcome.answered) == (reason, "as the process ended", False)
    assert outcome.answered_by == Answered(session="s-1", model="m-1")
    assert (outcome.usage, outcome.notices) == (Usage(input_tokens=1), ("n",))


def test_a_kill_from_elsewhere_after_a_reported_error_has_that_errors_reason() -> None:
    answer = Answer(reason=Reason.LLM_RATE_LIMIT, error="slow down", retry_after_ms=5)
    outcome = conclude(ended(Reason.KILLED), answer, settled=False, max_result_bytes=LIMIT)
    assert (outcome.reason, outcome.retry_after_ms) == (Reason.LLM_RATE_LIMIT, 5)


@pytest.mark.parametrize("acted", [True, False])
def test_a_failure_after_tools_were_used_leaves_their_effect_unknown(acted: bool) -> None:  # noqa: FBT001 - a case
    answer = Answer(reason=Reason.LLM_OVERLOADED, error="x", acted=acted)
    outcome = conclude(ended(), answer, settled=True, max_result_bytes=LIMIT)
    assert outcome.answered is not acted


def test_refused_tools_fail_and_are_named_once() -> None:
    answer = Answer(text="I could not", denied=("Bash", "Edit", "Bash"))
    outcome = conclude(ended(), answer, settled=True, max_result_bytes=LIMIT)
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", Reason.LLM_BAD_RESPONSE, True)
    assert outcome.error == (
        "the agent was refused tools that it asked for: `Bash`, `Edit`; allow them by the engine's `args`"
    )
    assert outcome.output == b""


def test_an_error_passed_off_as_an_answer_fails() -> None:
    outcome = conclude(ended(), Answer(text="API Error: 529 overloaded\n"), settled=True, max_result_bytes=LIMIT)
    assert (outcome.reason, outcome.output) == (Reason.LLM_OVERLOADED, b"")
    assert outcome.error == "an error was passed off as the answer: API Error: 529 overloaded"


def test_json_returned_apart_is_the_output() -> None:
    answer = Answer(text="prose", structured_json='{"error":{"message":"m","type":"t"}}')
    outcome = conclude(ended(), answer, settled=True, max_result_bytes=LIMIT)
    assert (outcome.output, outcome.is_json) == (b'{"error":{"message":"m","type":"t"}}', True)


def test_an_answer_over_the_limit_is_too_large() -> None:
    outcome = conclude(ended(), Answer(text="x" * (LIMIT + 1)), settled=True, max_result_bytes=LIMIT)
    assert (outcome.reason, outcome.output) == (Reason.OUTPUT_TOO_LARGE, b"")
    assert (
        outcome.error
        == "the answer is larger than 1000 bytes (max_result_bytes of [limits]); ask for a file and its path instead"
    )


def test_an_empty_answer_is_an_answer() -> None:
    assert conclude(ended(), Answer(), settled=True, max_result_bytes=LIMIT).status == "ok"


def test_what_is_to_be_said_of_the_log_stands_behind_what_the_engine_could_not_honour() -> None:
    end = msgspec.structs.replace(ended(), notices=("log", "both"))
    outcome = conclude(end, Answer(notices=("engine", "both")), settled=True, max_result_bytes=LIMIT)
    assert (outcome.status, outcome.notices) == ("ok", ("engine", "both", "log"))
