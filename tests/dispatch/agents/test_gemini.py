from __future__ import annotations

import json

import pytest
from tests.dispatch.agents.replies import ask, recorded, said

from interlock.dispatch.agents.gemini import GEMINI
from interlock.model.events import Usage
from interlock.model.states import Reason


def test_the_prompt_goes_by_stdin_and_files_may_be_edited() -> None:
    launch = GEMINI.launch(ask(model="m-1"))
    assert launch.stdin == b"Do it."
    assert launch.argv == (
        *("gemini", "-o", "stream-json", "-m", "m-1"),
        *("--session-id", "3b7a043d-ab4b-514e-bb23-043e320aff7e", "--approval-mode", "auto_edit"),
    )


def test_a_key_gets_a_home_whose_settings_turn_retries_off() -> None:
    launch = GEMINI.launch(ask(api_key="key-1", base_url="http://127.0.0.1:1"))
    assert launch.env["GEMINI_CLI_HOME"] == "/state"
    assert (launch.env["GEMINI_API_KEY"], launch.env["GOOGLE_GEMINI_BASE_URL"]) == ("key-1", "http://127.0.0.1:1")
    settings = json.loads(launch.state_files[".gemini/settings.json"])
    assert settings["general"]["maxAttempts"] == 1
    assert settings["security"]["auth"]["selectedType"] == "gemini-api-key"


def test_a_users_own_login_is_left_alone() -> None:
    launch = GEMINI.launch(ask())
    assert launch.state_files == {}
    assert set(launch.env) == {"GEMINI_CLI_TRUST_WORKSPACE", "GEMINI_CLI_NO_RELAUNCH"}


def test_a_prompt_that_looks_like_a_command_gets_a_sentence_before_it() -> None:
    launch = GEMINI.launch(ask(prompt="/init"))
    assert launch.stdin == b"The task follows.\n/init"
    assert len(launch.notices) == 1


@pytest.mark.parametrize("args", [("--yolo",), ("--approval-mode", "plan")])
def test_the_users_own_mode_replaces_ours(args: tuple[str, ...]) -> None:
    assert "auto_edit" not in GEMINI.launch(ask(args=args)).argv


def test_an_answer_has_text_session_model_and_tokens() -> None:
    answer = GEMINI.read(recorded("gemini-ok"))
    assert (answer.reason, answer.text, answer.model) == (None, "echo: hi", "zork-1")
    assert answer.session
    assert answer.usage is not None
    assert answer.usage.output_tokens is not None


def test_only_what_was_said_after_the_last_tool_is_the_answer() -> None:
    text = GEMINI.read(recorded("gemini-tool")).text
    assert text.startswith("tool said: Successfully")


def test_what_the_model_thought_counts_as_output() -> None:
    stats = '{"input_tokens":10,"output_tokens":5,"total_tokens":22,"cached":3}'
    usage = GEMINI.read(said(f'{{"type":"result","status":"success","stats":{stats}}}\n')).usage
    assert usage == Usage(input_tokens=10, output_tokens=12, cached_tokens=3, reasoning_tokens=7)


@pytest.mark.parametrize(
    ("name", "exit_code", "reason"),
    [
        ("gemini-401", 145, Reason.LLM_AUTH),
        ("gemini-429", 173, Reason.LLM_RATE_LIMIT),
        ("gemini-500", 244, Reason.LLM_OVERLOADED),
        ("gemini-cut", 1, Reason.NETWORK_ERROR),
    ],
)
def test_a_failure_is_read_from_the_result_and_the_exit_code(name: str, exit_code: int, reason: Reason) -> None:
    answer = GEMINI.read(recorded(name, exit_code))
    assert (answer.reason, answer.text, answer.acted) == (reason, "", False)


def test_a_tool_that_the_mode_withholds_is_a_refused_one() -> None:
    assert GEMINI.read(recorded("gemini-denied")).denied == ("run_shell_command",)


def test_another_unknown_tool_is_the_models_own_mistake() -> None:
    use = '{"type":"tool_use","tool_name":"zork","tool_id":"1"}\n'
    result = '{"type":"tool_result","tool_id":"1","status":"error","error":{"type":"tool_not_registered"}}\n'
    assert GEMINI.read(said(use + result + '{"type":"result","status":"success"}\n')).denied == ()


@pytest.mark.parametrize(
    ("exit_code", "err", "reason"),
    [
        (41, "Invalid auth method selected.", Reason.LLM_AUTH),
        (55, "the folder is not trusted", Reason.LLM_BAD_RESPONSE),
        (173, "Error when talking", Reason.LLM_RATE_LIMIT),
        (0, "", Reason.LLM_BAD_RESPONSE),
    ],
)
def test_without_a_result_the_exit_code_and_stderr_decide(exit_code: int, err: str, reason: Reason) -> None:
    answer = GEMINI.read(said("", exit_code, err))
    assert answer.reason is reason
    assert answer.error.startswith(f"the agent ended without its last event, `result` (exit code {exit_code})")


def test_a_session_that_is_gone_is_told() -> None:
    reply = said("", 42, 'Error resuming session: Invalid session identifier "x".', session="x")
    assert GEMINI.read(reply).session_gone
