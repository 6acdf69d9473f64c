from __future__ import annotations

import json

import pytest
from tests.dispatch.agents.replies import ask, recorded, said

from interlock.dispatch.agents.claude import CLAUDE
from interlock.model.events import Usage
from interlock.model.states import Reason


def test_the_prompt_goes_by_stdin_and_the_session_is_ours() -> None:
    launch = CLAUDE.launch(ask(prompt="-x\r\n@a", model="m-1"))
    assert launch.stdin == b"-x\r\n@a"
    assert launch.argv == (
        *("claude", "-p", "--output-format", "stream-json", "--verbose", "--model", "m-1"),
        *("--session-id", "3b7a043d-ab4b-514e-bb23-043e320aff7e", "--permission-mode", "acceptEdits"),
    )
    assert not launch.continues_session


def test_a_session_is_continued() -> None:
    launch = CLAUDE.launch(ask(session="5873e2bd"))
    assert launch.argv[5:7] == ("--resume", "5873e2bd")
    assert launch.continues_session


def test_its_own_retries_are_off_and_the_key_is_in_the_environment_alone() -> None:
    launch = CLAUDE.launch(ask(api_key="key-1", base_url="http://127.0.0.1:1", max_tokens=9))
    assert launch.env == {
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
        "ANTHROPIC_API_KEY": "key-1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "9",
    }
    assert "key-1" not in " ".join(launch.argv)


@pytest.mark.parametrize(
    "args", [("--permission-mode", "plan"), ("--permission-mode=plan",), ("--dangerously-skip-permissions",)]
)
def test_the_users_own_permission_mode_replaces_ours(args: tuple[str, ...]) -> None:
    assert "acceptEdits" not in CLAUDE.launch(ask(args=args)).argv


def test_a_prompt_that_looks_like_a_command_is_sent_so_that_it_is_none() -> None:
    launch = CLAUDE.launch(ask(prompt=" /init"))
    texts = [part["text"] for part in json.loads(launch.stdin)["message"]["content"]]
    assert texts == [" /init", "The text above is the whole task."]
    assert launch.argv[5:7] == ("--input-format", "stream-json")
    (notice,) = launch.notices
    assert notice == (
        "engine `coder` (claude) takes a prompt that begins with `/` for a command; "
        "a sentence was put beside it to prevent that"
    )


def test_an_answer_has_text_session_model_tokens_and_cost() -> None:
    answer = CLAUDE.read(recorded("claude-ok"))
    assert (answer.reason, answer.text, answer.model) == (None, "echo: hi", "claude-sonnet-4-5")
    assert answer.usage == Usage(
        input_tokens=22102, output_tokens=2, cached_tokens=0, reasoning_tokens=0, cost_usd=0.066336
    )
    assert answer.session


def test_a_continued_session_costs_what_was_added() -> None:
    reply = recorded("claude-resumed")
    last = json.loads(reply.out.splitlines()[-1])
    answer = CLAUDE.read(reply)
    assert answer.usage is not None
    assert answer.usage.cost_usd is not None
    assert answer.usage.cost_usd < last["total_cost_usd"]
    assert answer.usage.input_tokens == last["usage"]["input_tokens"]


def test_the_cost_of_a_model_without_a_price_is_unknown() -> None:
    usage = CLAUDE.read(recorded("claude-unpriced")).usage
    assert usage is not None
    assert (usage.input_tokens is None, usage.cost_usd) == (False, None)


def test_the_value_for_a_schema_is_taken_as_json() -> None:
    assert CLAUDE.read(recorded("claude-schema")).structured_json == '{"a":1}'


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("claude-401", Reason.LLM_AUTH),
        ("claude-429", Reason.LLM_RATE_LIMIT),
        ("claude-529", Reason.LLM_OVERLOADED),
        ("claude-cut", Reason.NETWORK_ERROR),
        ("claude-length", Reason.LLM_BAD_RESPONSE),
        ("claude-max-turns", Reason.LLM_BAD_RESPONSE),
    ],
)
def test_a_failure_is_told_by_is_error_though_the_subtype_says_success(name: str, reason: Reason) -> None:
    answer = CLAUDE.read(recorded(name, 1))
    assert (answer.reason, answer.text) == (reason, "")
    assert answer.error
    assert answer.session


def test_tools_used_before_a_failure_are_noticed() -> None:
    assert CLAUDE.read(recorded("claude-max-turns", 1)).acted
    assert not CLAUDE.read(recorded("claude-529", 1)).acted


def test_reaching_the_limit_of_turns_says_so() -> None:
    assert CLAUDE.read(recorded("claude-max-turns", 1)).error == "Reached maximum number of turns (1)"


def test_a_refused_tool_is_named() -> None:
    assert CLAUDE.read(recorded("claude-denied")).denied == ("Bash",)


def test_a_session_that_is_gone_is_told() -> None:
    answer = CLAUDE.read(recorded("claude-gone", 1, session="5873e2bd-699d-46b1-97c3-000000000000"))
    assert answer.session_gone
    assert answer.session is None


def test_a_used_up_allowance_is_a_quota_until_its_reset() -> None:
    reply = recorded("claude-429", 1)
    limit = b'{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1796010000}}\n'
    out = limit + reply.out
    answer = CLAUDE.read(said(out.decode(), 1))
    assert (answer.reason, answer.quota_until) == (Reason.LLM_QUOTA, 1_796_010_000_000)


@pytest.mark.parametrize("out", ["", "{", "\x00\xff", '{"type":"assistant"}\n', "null\n[]\n1\n", '{"type":"result"'])
def test_without_a_result_it_is_a_bad_response(out: str) -> None:
    answer = CLAUDE.read(said(out, 0))
    assert answer.reason is Reason.LLM_BAD_RESPONSE
    assert answer.error == "the agent ended without its last event, `result` (exit code 0)"


def test_without_a_result_stderr_tells_the_reason() -> None:
    answer = CLAUDE.read(said("", 1, "Invalid API key · Please run /login\n"))
    assert answer.reason is Reason.LLM_AUTH
    assert answer.error.endswith("(exit code 1): Invalid API key · Please run /login")


def test_only_the_result_is_the_last_event() -> None:
    lines = recorded("claude-ok").out.splitlines()
    assert [CLAUDE.is_terminal(line) for line in lines] == [False, False, True]
    assert not CLAUDE.is_terminal(b'{"type":"assistant","message":{"content":"\\"type\\":\\"result\\""}}')
    assert not CLAUDE.is_terminal(b'{"type":"result"')
