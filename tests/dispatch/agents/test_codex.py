from __future__ import annotations

import tomllib

import pytest
from tests.dispatch.agents.replies import ask, recorded, said

from interlock.dispatch.agents.codex import CODEX
from interlock.model.events import Usage
from interlock.model.states import Reason


def test_the_prompt_goes_by_stdin_and_the_folder_may_be_written() -> None:
    launch = CODEX.launch(ask(prompt="--help", model="m-1"))
    assert launch.stdin == b"--help"
    assert launch.argv == (
        *("codex", "exec", "--json", "--skip-git-repo-check", "-C", "/project", "-m", "m-1"),
        *("-s", "workspace-write", "-"),
    )


def test_a_thread_is_continued_and_options_stay_before_it() -> None:
    launch = CODEX.launch(ask(session="01a2", args=("-c", "a=1")))
    assert launch.argv[-5:] == ("-c", "a=1", "resume", "01a2", "-")
    assert launch.continues_session


def test_a_base_url_gets_a_provider_without_retries_and_no_key_in_its_arguments() -> None:
    launch = CODEX.launch(ask(base_url='http://127.0.0.1:1/"v1', api_key="key-1"))
    settings = tomllib.loads("\n".join(entry for entry in launch.argv if entry.startswith("model_provider")))
    assert settings == {
        "model_provider": "interlock",
        "model_providers": {
            "interlock": {
                "name": "interlock",
                "base_url": 'http://127.0.0.1:1/"v1',
                "wire_api": "responses",
                "request_max_retries": 0,
                "stream_max_retries": 0,
                "env_key": "CODEX_API_KEY",
            }
        },
    }
    assert launch.env == {"CODEX_API_KEY": "key-1"}
    assert "key-1" not in " ".join(launch.argv)


def test_a_schema_goes_by_a_file() -> None:
    launch = CODEX.launch(ask(schema_json='{"type":"object"}'))
    assert launch.files == {"schema.json": b'{"type":"object"}'}
    assert launch.argv[launch.argv.index("--output-schema") + 1] == "/private/schema.json"


@pytest.mark.parametrize("flag", ["-s", "--sandbox", "--full-auto", "--profile"])
def test_the_users_own_sandbox_replaces_ours(flag: str) -> None:
    assert "workspace-write" not in CODEX.launch(ask(args=(flag, "x"))).argv


def test_an_answer_has_the_last_message_thread_and_tokens() -> None:
    answer = CODEX.read(recorded("codex-tool"))
    assert answer.reason is None
    assert answer.text.startswith("tool said: ")
    assert answer.session
    assert answer.usage is not None
    assert answer.usage.cost_usd is None


def test_a_continued_thread_is_charged_for_its_turn_alone() -> None:
    before = CODEX.read(recorded("codex-ok")).usage
    total = CODEX.read(recorded("codex-resumed")).usage
    assert before is not None
    assert total is not None
    answer = CODEX.read(recorded("codex-resumed", session="01a2", session_usage=before))
    assert answer.usage == Usage(
        input_tokens=(total.input_tokens or 0) - (before.input_tokens or 0),
        output_tokens=(total.output_tokens or 0) - (before.output_tokens or 0),
        cached_tokens=0,
        reasoning_tokens=0,
    )


def test_what_a_turn_used_is_unknown_where_its_past_is() -> None:
    assert CODEX.read(recorded("codex-resumed", session="01a2")).usage == Usage()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("codex-400", Reason.LLM_BAD_RESPONSE),
        ("codex-401", Reason.LLM_AUTH),
        ("codex-429", Reason.LLM_RATE_LIMIT),
        ("codex-500", Reason.LLM_OVERLOADED),
        ("codex-529", Reason.LLM_OVERLOADED),
        ("codex-cut", Reason.NETWORK_ERROR),
        ("codex-length", Reason.LLM_BAD_RESPONSE),
    ],
)
def test_a_failed_turn_is_a_failure_with_its_reason(name: str, reason: Reason) -> None:
    answer = CODEX.read(recorded(name, 1))
    assert (answer.reason, answer.text, answer.acted) == (reason, "", False)
    assert answer.session


def test_a_warning_item_is_no_failure() -> None:
    reply = recorded("codex-ok")
    assert b'"type": "error"' in reply.out
    assert CODEX.read(reply).reason is None


def test_a_used_up_allowance_is_a_quota_with_its_reset() -> None:
    message = "You've hit your usage limit. Upgrade to Pro or try again in 3 hours 12 minutes."
    answer = CODEX.read(said(f'{{"type":"turn.failed","error":{{"message":"{message}"}}}}\n', 1))
    assert answer.reason is Reason.LLM_QUOTA
    assert answer.quota_until == 1_796_006_400_000 + (3 * 60 + 12) * 60_000


def test_a_declined_command_is_named() -> None:
    item = '{"type":"item.completed","item":{"type":"command_execution","command":"rm x","status":"declined"}}\n'
    done = '{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":1}}\n'
    assert CODEX.read(said(item + done)).denied == ("rm x",)


def test_a_thread_that_is_gone_is_told() -> None:
    err = "Error: thread/resume: thread/resume failed: no rollout found for thread id 01a2 (code -32600)"
    answer = CODEX.read(said("", 1, err, session="01a2"))
    assert answer.session_gone
    assert answer.reason is Reason.LLM_BAD_RESPONSE


def test_an_error_without_a_turns_end_tells_the_reason() -> None:
    answer = CODEX.read(said('{"type":"error","message":"unexpected status 401 Unauthorized: no"}\n', 1))
    assert answer.reason is Reason.LLM_AUTH


def test_a_message_without_a_turns_end_is_no_answer() -> None:
    out = '{"type":"item.completed","item":{"type":"agent_message","text":"half"}}\n'
    answer = CODEX.read(said(out, 0))
    assert (answer.reason, answer.text) == (Reason.LLM_BAD_RESPONSE, "")
    assert answer.error == "the agent ended without its last event, `turn.completed` (exit code 0)"


def test_the_end_of_the_turn_is_the_last_event() -> None:
    assert CODEX.is_terminal(b'{"type":"turn.completed","usage":{}}')
    assert CODEX.is_terminal(b'{"type":"turn.failed","error":{}}')
    assert not CODEX.is_terminal(b'{"type":"item.completed","item":{"type":"turn.completed"}}')
