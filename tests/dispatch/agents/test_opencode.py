"""`opencode run`: how it is started, and what its output means, with what the real one printed."""

from __future__ import annotations

import json
from typing import Any

from interlock.dispatch.agents.base import Answer, Ask, Reply
from interlock.dispatch.agents.opencode import OPENCODE
from interlock.dispatch.agents.opencode_config import CONTENT
from interlock.model.events import Usage
from interlock.model.states import Reason


def ask(**changes: Any) -> Ask:
    defaults: dict[str, Any] = {
        "engine": "coder",
        "prompt": "do it",
        "cwd": "/project",
        "folder": "/private",
        "state": "/state",
        "new_session": "0123456789",
    }
    return Ask(**(defaults | changes))


def event(kind: str, **part: object) -> dict[str, object]:
    return {"type": kind, "sessionID": "ses_1", "part": part}


def finish(reason: str) -> dict[str, object]:
    tokens = {"input": 10, "output": 2, "reasoning": 1, "cache": {"read": 5, "write": 0}}
    return event("step_finish", reason=reason, tokens=tokens, cost=0.5)


def read(*events: object, err: str = "", **changes: Any) -> Answer:
    out = "".join(json.dumps(one) + "\n" for one in events).encode()
    return OPENCODE.read(Reply(ask=ask(**changes), out=out, err=err.encode(), exit_code=0, now_ms=1_000))


def config(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(OPENCODE.launch(ask(**changes)).env[CONTENT])
    return made


def test_the_prompt_goes_in_by_stdin_and_a_title_saves_a_model_call() -> None:
    launch = OPENCODE.launch(ask(model="anthropic/opus", args=("--auto",)))
    assert launch.argv == (
        "opencode", "run", "--format", "json", "-m", "anthropic/opus", "--title", "interlock 01234567", "--auto",
    )  # fmt: skip
    assert launch.stdin == b"do it"
    assert OPENCODE.launch(ask(session="ses_1")).argv[-2:] == ("-s", "ses_1")


def test_an_endpoint_of_ones_own_is_declared_and_its_key_only_named() -> None:
    launch = OPENCODE.launch(ask(model="m-1", base_url="http://x/v1", api_key="secret"))
    assert launch.argv[4:6] == ("-m", "interlock/m-1")
    assert "secret" not in launch.env[CONTENT]
    assert launch.env["INTERLOCK_API_KEY"] == "secret"
    assert json.loads(launch.env[CONTENT])["provider"]["interlock"] == {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": "http://x/v1", "apiKey": "{env:INTERLOCK_API_KEY}"},
        "models": {"m-1": {}},
    }


def test_what_the_user_configured_stands_where_nothing_is_said_of_it() -> None:
    own = json.dumps({"permission": {"bash": "deny"}, "provider": {"mine": {}}, "autoupdate": True})
    made = config(model="openai/gpt", api_key="k", env={CONTENT: own})
    assert made["permission"] == {"bash": "deny"}
    assert made["provider"] == {"mine": {}, "openai": {"options": {"apiKey": "{env:INTERLOCK_API_KEY}"}}}
    assert (made["autoupdate"], made["small_model"]) == (False, "openai/gpt")


def test_the_text_of_the_last_step_is_the_answer_and_usage_is_the_sum() -> None:
    answer = read(
        event("step_start"),
        event("text", text="let me see"),
        event("tool_use", tool="bash", state={"status": "completed"}),
        finish("tool-calls"),
        event("step_start"),
        event("text", text="so it "),
        event("text", text="is"),
        finish("stop"),
    )
    usage = Usage(input_tokens=30, output_tokens=6, cached_tokens=10, reasoning_tokens=2, cost_usd=1.0)
    assert answer == Answer(text="so it is", session="ses_1", usage=usage)


def test_a_refused_permission_fails_and_is_named_though_it_exits_with_0() -> None:
    state = {"status": "error", "error": "The user rejected permission to use this specific tool call."}
    answer = read(event("step_start"), event("tool_use", tool="bash", state=state), finish("tool-calls"))
    assert (answer.denied, answer.text) == (("bash",), "")


def test_a_stop_that_is_none_and_a_silence_are_no_answers() -> None:
    text = event("text", text="half")
    assert read(text, finish("length")).error == "the answer was cut at the model's output limit"
    assert read(text, finish("content-filter")).reason is Reason.LLM_CONTENT_FILTER
    assert read(finish("tool-calls")).error == "it ended in the middle of its work, after a tool call"
    assert read(text).error == "it gave no answer"
    assert read(err="\x1b[91mError: \x1b[0mboom").error == "it gave no answer: Error: boom"


def test_an_error_has_the_reason_of_its_status_and_the_wait_of_its_headers() -> None:
    data = {"message": "fake error 401", "statusCode": 401}
    assert read({"type": "error", "error": {"name": "APIError", "data": data}}).reason is Reason.LLM_AUTH
    data = {"message": "slow down", "statusCode": 429, "responseHeaders": {"retry-after": "7"}}
    answer = read({"type": "error", "error": {"name": "APIError", "data": data}})
    assert (answer.reason, answer.retry_after_ms, answer.acted) == (Reason.LLM_RATE_LIMIT, 7_000, False)


def test_a_session_that_is_not_found_is_gone() -> None:
    assert read(err="\x1b[91m\x1b[1mError: \x1b[0mSession not found", session="ses_9").session_gone
    assert not read(err="Session not found").session_gone


def test_the_end_of_the_last_step_is_the_last_event() -> None:
    assert OPENCODE.is_terminal(json.dumps(finish("stop")).encode())
    assert not OPENCODE.is_terminal(json.dumps(finish("tool-calls")).encode())
    assert not OPENCODE.is_terminal(b'{"step_finish')
