from __future__ import annotations

import json

import pytest
from tests.dispatch.agents.replies import ask, recorded, said

from interlock.dispatch.agents.qwen import QWEN
from interlock.model.states import Reason


def test_the_prompt_goes_by_stdin_as_json_so_that_nothing_is_added() -> None:
    launch = QWEN.launch(ask(prompt="a\r\n\x00 é", model="m-1"))
    message = json.loads(launch.stdin)["message"]
    assert message == {"role": "user", "content": [{"type": "text", "text": "a\r\n\x00 é"}]}
    assert launch.argv == (
        *("qwen", "--input-format", "stream-json", "-o", "stream-json", "-m", "m-1"),
        *("--session-id", "3b7a043d-ab4b-514e-bb23-043e320aff7e", "--approval-mode", "auto-edit"),
        "--exclude-tools=run_shell_command,monitor",
    )


def test_a_prompt_that_looks_like_a_command_gets_a_sentence_before_it() -> None:
    launch = QWEN.launch(ask(prompt="\n/init"))
    assert json.loads(launch.stdin)["message"]["content"][0]["text"] == "The task follows.\n\n/init"


def test_settings_turn_retries_off_and_hold_temperature_and_max_tokens() -> None:
    launch = QWEN.launch(ask(temperature=0.5, max_tokens=9))
    assert launch.env == {"QWEN_CODE_SYSTEM_DEFAULTS_PATH": "/private/settings.json"}
    assert json.loads(launch.files["settings.json"])["model"] == {
        "generationConfig": {"maxRetries": 0, "samplingParams": {"temperature": 0.5, "max_tokens": 9}}
    }


def test_a_key_goes_by_the_environment_to_the_openai_api() -> None:
    launch = QWEN.launch(ask(api_key="key-1", base_url="http://127.0.0.1:1/v1"))
    assert (launch.env["OPENAI_API_KEY"], launch.env["OPENAI_BASE_URL"]) == ("key-1", "http://127.0.0.1:1/v1")
    assert launch.argv[launch.argv.index("--auth-type") + 1] == "openai"
    assert "key-1" not in " ".join(launch.argv)


def test_the_users_own_kind_of_key_and_mode_replace_ours() -> None:
    argv = QWEN.launch(ask(api_key="k", args=("--auth-type", "anthropic", "--yolo"))).argv
    assert argv[-3:] == ("--auth-type", "anthropic", "--yolo")
    assert argv.count("--auth-type") == 1
    assert "--approval-mode" not in argv


def test_a_schema_is_left_to_the_prompt() -> None:
    assert not QWEN.card.enforces_schema
    assert "--json-schema" not in QWEN.launch(ask(schema_json="{}")).argv


def test_an_answer_has_text_session_model_and_tokens() -> None:
    answer = QWEN.read(recorded("qwen-ok"))
    assert (answer.reason, answer.text.strip(), answer.model) == (None, "echo: hi", "zork-1")
    assert answer.session
    assert answer.usage is not None


def test_a_continued_session_is_charged_for_its_new_messages_alone() -> None:
    reply = recorded("qwen-resumed", session="x")
    total = json.loads(reply.out.splitlines()[-1])["usage"]["input_tokens"]
    usage = QWEN.read(reply).usage
    assert usage is not None
    assert usage.input_tokens is not None
    assert usage.input_tokens < total


@pytest.mark.parametrize(("name", "reason"), [("qwen-401", Reason.LLM_AUTH), ("qwen-400", Reason.LLM_BAD_RESPONSE)])
def test_a_failed_call_is_a_failure_with_its_reason(name: str, reason: Reason) -> None:
    answer = QWEN.read(recorded(name, 1))
    assert (answer.reason, answer.text, answer.acted) == (reason, "", False)


def test_an_answer_stitched_together_after_a_break_fails() -> None:
    answer = QWEN.read(recorded("qwen-length"))
    assert answer.reason is Reason.LLM_BAD_RESPONSE
    assert answer.error == (
        "the model's answer broke off (cut connection or token limit) and was stitched together by the CLI"
    )


def test_a_refused_tool_is_named() -> None:
    assert QWEN.read(recorded("qwen-denied")).denied == ("run_shell_command",)


def test_a_session_that_is_gone_is_told() -> None:
    assert QWEN.read(said("", 1, "No saved session found with ID x.", session="x")).session_gone


def test_without_a_result_it_is_a_bad_response() -> None:
    assert QWEN.read(said("", 0)).reason is Reason.LLM_BAD_RESPONSE
