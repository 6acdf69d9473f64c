"""An ACP agent as a real process, from the prompt to the outcome."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.dispatch.agents.desk import Desk
from tests.dispatch.shop import marked, runs, until

from interlock.dispatch.agents.acp_policy import policy_of
from interlock.dispatch.agents.base import CannotAskError
from interlock.dispatch.base import EngineSettings, Outcome, Started
from interlock.dispatch.env.redact import PatternRedactor
from interlock.model.events import Usage
from interlock.model.states import Reason

AGENT = str(Path(__file__).with_name("fake_acp.py"))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    try:
        yield made
    finally:
        made.close()
        assert marked(made.marker.run_id) == []


def engine(*flags: str, args: tuple[str, ...] = ()) -> EngineSettings:
    return EngineSettings(name="coder", kind="agent", driver="acp", command=(sys.executable, AGENT, *flags), args=args)


def ask(desk: Desk, prompt: str, settings: EngineSettings | None = None, **changes: Any) -> Outcome:
    return desk.ask(settings or engine(), prompt, **changes).outcome()


def test_the_text_session_and_usage_of_a_turn_are_the_answer(desk: Desk) -> None:
    outcome = ask(desk, "hello")
    assert (outcome.status, outcome.output) == ("ok", b"echo: hello")
    assert outcome.usage == Usage(input_tokens=15, output_tokens=2, cached_tokens=5)
    assert outcome.answered_by is not None
    assert str(outcome.answered_by.session).startswith("s")


def test_a_log_that_takes_nothing_costs_no_answer(tmp_path: Path) -> None:
    desk = Desk(tmp_path, log=Path("/dev/full"))
    try:
        outcome = ask(desk, "hello")
    finally:
        desk.close()
    assert (outcome.status, outcome.output, outcome.log) == ("ok", b"echo: hello", None)
    told = "the log /dev/full lacks some of what was said: it could not be written: No space left on device"
    assert outcome.notices == (told,)


def test_what_was_said_before_a_tool_was_used_is_no_part_of_the_answer(desk: Desk) -> None:
    assert ask(desk, "tool").output == b"found it"


def test_a_process_is_given_out_again_and_two_prompts_at_once_get_one_each(desk: Desk) -> None:
    first, again = ask(desk, "pid").output, ask(desk, "pid").output
    hanging = desk.ask(engine(), "hang")
    until(lambda: len([r for r in desk.reports if isinstance(r, Started)]) == 3)
    other = ask(desk, "pid").output
    hanging.attempt.cancel(5.0)
    assert hanging.outcome().status == "aborted"
    assert first == again
    assert other != first


def test_a_session_goes_on_in_the_process_that_has_it(desk: Desk) -> None:
    session = _session(ask(desk, "hello"))
    outcome = ask(desk, "more", session=session)
    assert (_session(outcome), outcome.notices) == (session, ())


def test_a_session_of_an_earlier_process_is_loaded_and_its_history_not_heard(desk: Desk) -> None:
    outcome = ask(desk, "more", engine("--load"), session="s-old")
    assert (outcome.output, _session(outcome), outcome.notices) == (b"echo: more", "s-old", ())


@pytest.mark.parametrize(
    ("flags", "notice"),
    [
        (("--load",), "session s-gone of engine `coder` is gone; a new one was started"),
        ((), "engine `coder` cannot go on in a session; a new one was started"),
    ],
)
def test_a_session_that_cannot_go_on_is_started_anew_and_said(desk: Desk, flags: tuple[str, ...], notice: str) -> None:
    outcome = ask(desk, "more", engine(*flags), session="s-gone")
    assert (outcome.output, outcome.notices) == (b"echo: more", (notice,))


def test_a_model_is_set_or_it_is_said_that_it_was_not(desk: Desk) -> None:
    assert ask(desk, "hi", engine("--models"), model="m-1").notices == ()
    refused = "engine `coder`: model `m-bad` was not set: Invalid params"
    assert ask(desk, "hi", engine("--models"), model="m-bad").notices == (refused,)
    none = "engine `coder`: its agent lets nobody choose a model; `m-1` was not set"
    assert ask(desk, "hi", model="m-1").notices == (none,)


def test_edits_below_the_working_directory_are_allowed_and_all_else_is_refused(desk: Desk) -> None:
    assert ask(desk, f"permission edit {desk.cwd}/a.py").output == b"y"
    for call in (f"edit {desk.folder}/a.py", f"edit {desk.cwd}/../a.py", "execute rm", "unheard-of x"):
        refused = ask(desk, f"permission {call}")
        assert refused.error == (
            f"the agent was refused tools that it asked for: `{call}`; allow them by the engine's `args`"
        )
        assert refused.reason is Reason.LLM_BAD_RESPONSE
    assert ask(desk, "permission execute rm", engine(args=("permissions=all",))).output == b"y"
    assert ask(desk, f"permission edit {desk.cwd}/a.py", engine(args=("permissions=read",))).status == "failed"


def test_a_policy_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(CannotAskError) as refused:
        policy_of(("permissions=some",))
    assert str(refused.value) == (
        "`permissions=some` in the engine's `args` is no policy; write permissions=all, edits or read"
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"code": 401, "message": "no"}, Reason.LLM_AUTH),
        ({"code": -32000, "message": "Authentication required"}, Reason.LLM_AUTH),
        ({"code": -32603, "message": "Internal error", "data": {"details": "429 slow down"}}, Reason.LLM_RATE_LIMIT),
        ({"code": -32603, "message": "Internal error: fake error 529"}, Reason.LLM_OVERLOADED),
        ({"code": -32603, "message": "nothing known"}, Reason.LLM_BAD_RESPONSE),
    ],
)
def test_an_error_of_a_turn_has_the_reason_that_its_words_tell(desk: Desk, error: object, reason: Reason) -> None:
    outcome = ask(desk, f"error {json.dumps(error)}")
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", reason, True)


@pytest.mark.parametrize("stop", ["max_tokens", "max_turn_requests", "refusal", "cancelled", "", "new-one"])
def test_a_stop_that_is_not_the_end_of_a_turn_is_no_answer(desk: Desk, stop: str) -> None:
    outcome = ask(desk, f"stop {stop}")
    assert (outcome.status, outcome.output) == ("failed", b"")


def test_an_error_passed_off_as_text_fails_even_after_chatter(desk: Desk) -> None:
    said = [
        "Info: Request failed due to a transient API error. Retrying...",
        "Error: Authentication failed (HTTP 401).",
    ]
    outcome = ask(desk, f"text {json.dumps(said)}")
    assert outcome.reason is Reason.LLM_AUTH
    assert outcome.error == "an error was passed off as the answer: Error: Authentication failed (HTTP 401)."
    body = '{"type": "error", "error": {"message": "429 Too Many Requests", "code": 429}}'
    assert ask(desk, f"text {json.dumps([body])}").reason is Reason.LLM_RATE_LIMIT


def test_an_agent_that_exits_in_the_middle_fails_with_what_it_said(desk: Desk) -> None:
    outcome = ask(desk, "exit")
    assert (outcome.reason, outcome.answered) == (Reason.KILLED, False)
    assert outcome.error == ("the agent ended in the middle: it closed its output (exit code 3): boom on stderr")


def test_a_program_that_does_not_speak_acp_is_no_agent(desk: Desk) -> None:
    silent = EngineSettings(
        name="coder", kind="agent", driver="acp", command=("sh", "-c", "echo no such flag >&2; exit 2")
    )
    outcome = ask(desk, "hi", silent)
    assert (outcome.reason, outcome.answered) == (Reason.SPAWN_FAILED, True)
    assert outcome.error.startswith("the agent does not speak ACP: ")
    assert outcome.error.endswith("(exit code 2): no such flag")


def test_an_engine_without_a_command_says_what_to_write(desk: Desk) -> None:
    outcome = ask(desk, "hi", EngineSettings(name="coder", kind="agent", driver="acp"))
    assert outcome.error == 'engine `coder` names no agent; give it `command`, such as ["gemini", "--acp"]'


def test_a_request_that_is_not_offered_is_answered_so(desk: Desk) -> None:
    assert ask(desk, "unknown-request").output == b"-32601"


def test_a_prompt_larger_than_the_pipe_arrives_whole(desk: Desk) -> None:
    assert ask(desk, "size " + "x" * 400_000).output == b"400000"


def test_a_prompt_that_begins_like_a_command_is_made_none_and_said(desk: Desk) -> None:
    outcome = ask(desk, "/help me")
    assert outcome.output == b"echo: The task follows.\n/help me"
    assert len(outcome.notices) == 1
    assert "takes a prompt that begins with `/` for a command" in outcome.notices[0]


def test_a_cancelled_prompt_is_cancelled_politely_and_nothing_of_it_is_left(desk: Desk) -> None:
    asked = desk.ask(engine(), "hang")
    process = until(lambda: next((r.process for r in desk.reports if isinstance(r, Started)), None))
    until(lambda: len(marked(desk.marker.run_id)) >= 2)
    asked.attempt.cancel(10.0)
    outcome = asked.outcome()
    assert (outcome.status, outcome.reason) == ("aborted", Reason.ABORTED)
    assert (desk.cwd / "cancelled").exists()
    assert not runs(process.pid)


@pytest.mark.parametrize(
    ("limit", "reason"), [("timeout_ms", Reason.TIMEOUT), ("idle_timeout_ms", Reason.IDLE_TIMEOUT)]
)
def test_a_prompt_that_takes_too_long_or_is_silent_is_ended(desk: Desk, limit: str, reason: Reason) -> None:
    changes: dict[str, Any] = {limit: 1_500}
    outcome = ask(desk, "hang", **changes)
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", reason, False)
    assert _session(outcome)


def test_a_secret_that_comes_in_pieces_is_redacted(desk: Desk) -> None:
    desk.redactor = PatternRedactor({"TOKEN": "hunter2-hunter2"})
    outcome = ask(desk, f"text {json.dumps(['the key is hunter2', '-hunter2', ' ok'])}")
    assert b"hunter2-hunter2" not in outcome.output
    assert outcome.output.startswith(b"the key is ")


def test_variables_of_one_attempt_do_not_reach_a_process_that_serves_many(desk: Desk) -> None:
    assert ask(desk, "env INTERLOCK_UNIT_ID").output == b"absent"
    assert ask(desk, "env INTERLOCK_RUN_ID").output == desk.marker.run_id.encode()


def _session(outcome: Outcome) -> str:
    assert outcome.answered_by is not None
    return outcome.answered_by.session or ""
