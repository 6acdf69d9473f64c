"""Rows of the table: how an agent is started, and what its output means, with what the real ones printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.dispatch.agents.desk import Desk

from interlock.dispatch.agents import registry
from interlock.dispatch.agents.base import Answer, Ask, CannotAskError, Reply
from interlock.dispatch.agents.rules import parse, parse_conditions
from interlock.dispatch.agents.table import TableAdapter, row_of, rows, table_adapter
from interlock.dispatch.base import EngineSettings
from interlock.model.events import Usage
from interlock.model.states import Reason

COPILOT_END = {"type": "result", "sessionId": "s-1", "exitCode": 0}
PI_SESSION = {"type": "session", "version": 3, "id": "s-1"}
PI_END = {"type": "agent_settled", "aborted": False}


def ask(**changes: Any) -> Ask:
    defaults: dict[str, Any] = {
        "engine": "coder",
        "prompt": "-do it",
        "cwd": "/project",
        "folder": "/private",
        "state": "/state",
        "new_session": "uuid-1",
        "env": {"HOME": "/home/me"},
    }
    return Ask(**(defaults | changes))


def read(agent: str, *events: object, code: int | None = 0, err: str = "", **changes: Any) -> Answer:
    out = "".join((event if isinstance(event, str) else json.dumps(event)) + "\n" for event in events)
    reply = Reply(ask=ask(**changes), out=out.encode(), err=err.encode(), exit_code=code, now_ms=1_000)
    return table_adapter(agent).read(reply)


def copilot(kind: str, **data: object) -> dict[str, object]:
    return {"type": kind, "data": data}


def pi(**message: object) -> dict[str, object]:
    usage = {"input": 10, "output": 3, "cacheRead": 4, "cacheWrite": 1, "reasoning": 0, "cost": {"total": 0}}
    return {"type": "message_end", "message": {"role": "assistant", "model": "m-1", "usage": usage, **message}}


AGENTS = (
    *("acp", "aider", "claude", "cline", "codex", "command", "copilot", "cursor", "gemini", "goose"),
    *("opencode", "opencode-serve", "pi", "qwen"),
)


def test_every_agent_has_an_adapter_and_a_row_makes_one_known() -> None:
    assert registry.names() == AGENTS
    assert {agent: registry.card(agent).program for agent in AGENTS}.keys() == set(AGENTS)
    assert set(rows()) <= set(AGENTS)


def test_a_made_up_agent_works_by_its_row_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import json, os, sys; prompt = sys.stdin.read();"
        "print('starting up'); print(json.dumps({'kind': 'hello', 'session': sys.argv[2]}));"
        "print(json.dumps({'kind': 'word', 'text': prompt})); print(json.dumps({'kind': 'word', 'text': os.environ['X_KEY']}));"
        "print(json.dumps({'kind': 'end', 'in': 3, 'out': 4}))"
    )
    made_up = {
        "program": sys.executable,
        "argv": ["-c", script, "--session", "{new_session}"],
        "env": {"X_KEY": "{api_key}"},
        "output": "jsonl",
        "text": "join kind=word -> text",
        "session": "first kind=hello -> session",
        "terminal": "kind=end",
        "input_tokens": ["kind=end -> in"],
        "output_tokens": ["kind=end -> out"],
    }
    adapter = TableAdapter(row_of(made_up, "made-up"))
    monkeypatch.setattr("interlock.dispatch.agents.runner.adapter", lambda _: adapter)
    desk = Desk(tmp_path)
    engine = EngineSettings(name="x", kind="agent", driver="made-up", api_key="X_API_KEY")
    outcome = desk.ask(engine, "-- prompt --").outcome()
    desk.close()
    assert (outcome.status, outcome.output) == ("ok", b"-- prompt --dummy-key")
    assert outcome.usage == Usage(input_tokens=3, output_tokens=4)
    assert outcome.answered_by is not None
    assert str(outcome.answered_by.session).count("-") == 4


def test_a_part_that_names_something_unknown_is_left_out_whole() -> None:
    bare = table_adapter("copilot").launch(ask())
    assert bare.argv == (
        "copilot", "--output-format", "json", "--no-ask-user", "--session-id", "uuid-1", "--allow-all-tools",
    )  # fmt: skip
    assert bare.env == {"COPILOT_AUTO_UPDATE": "false"}
    full = table_adapter("copilot").launch(
        ask(model="m-1", session="s-1", base_url="http://x/v1", api_key="k", args=("--deny-tool", "shell"))
    )
    assert full.argv[4:] == ("--resume", "s-1", "--model", "m-1", "--deny-tool", "shell")
    assert full.env["COPILOT_PROVIDER_API_KEY"] == "k"
    assert "COPILOT_GITHUB_TOKEN" not in full.env
    assert (full.stdin, full.continues_session) == (b"-do it", True)


def test_values_put_into_a_json_file_are_escaped_and_the_key_is_only_named() -> None:
    launch = table_adapter("pi").launch(ask(model='m"1', base_url="http://x/v1", api_key="secret"))
    provider = json.loads(launch.files["models.json"])["providers"]["interlock"]
    assert provider["models"] == [{"id": 'm"1'}]
    assert b"secret" not in b"".join(launch.files.values())
    assert launch.env["PI_CODING_AGENT_DIR"] == "/private"
    assert table_adapter("pi").launch(ask(model="m-1")).files == {}
    unread = "pi was not given the engine's `api_key`: without `base_url` it reads its own keys"
    assert table_adapter("pi").launch(ask(api_key="secret")).notices == (unread,)
    assert launch.notices == ()


def test_a_prompt_that_an_argument_cannot_hold_is_refused() -> None:
    launch = table_adapter("cursor").launch(ask())
    assert launch.argv[-2:] == ("--", "-do it")
    with pytest.raises(CannotAskError) as nul:
        table_adapter("cursor").launch(ask(prompt="a\0b"))
    assert nul.value.reason is Reason.PROMPT_TOO_LARGE
    with pytest.raises(CannotAskError) as large:
        table_adapter("cline").launch(ask(prompt="é" * 65_536))
    assert str(large.value) == (
        "the prompt has 131072 bytes, and `cline` takes it as an argument, which holds at most 131071; shorten it or "
        "use another agent"
    )


def test_a_prompt_by_file_arrives_byte_for_byte() -> None:
    launch = table_adapter("aider").launch(ask(prompt="\r\n--- é"))
    assert launch.files == {"prompt.txt": "\r\n--- é".encode()}
    assert launch.argv[1:3] == ("--message-file", "/private/prompt.txt")


def test_copilot_answers_with_its_last_message() -> None:
    said = copilot("assistant.message", content="done", model="m-1", messageId="b", apiCallId="req-1")
    answer = read("copilot", copilot("assistant.message", content="", messageId="a"), said, COPILOT_END)
    assert answer == Answer(text="done", session="s-1", model="m-1", request_id="req-1")


def test_copilot_fails_by_its_error_its_refusals_and_its_cut_answers() -> None:
    error = copilot("session.error", message="Authentication failed", statusCode=401)
    end = COPILOT_END | {"exitCode": 1}
    assert read("copilot", error, end, code=1).reason is Reason.LLM_AUTH
    start = copilot("tool.execution_start", toolCallId="1", toolName="bash")
    denied = copilot("tool.execution_complete", toolCallId="1", success=False, error={"code": "denied"})
    said = copilot("assistant.message", content="it was refused", messageId="a")
    assert read("copilot", start, denied, said, COPILOT_END).denied == ("bash",)
    begun = copilot("assistant.message_start", messageId="z")
    cut = read("copilot", begun, said, COPILOT_END)
    assert (cut.reason, cut.error) == (
        Reason.LLM_BAD_RESPONSE,
        "the answer was cut: the agent began a message that it did not finish",
    )


def test_a_session_that_copilot_does_not_know_is_gone() -> None:
    words = "Error: No session, task, or name matched 's-9'."
    assert read("copilot", code=1, err=words, session="s-9").session_gone
    assert not read("copilot", code=1, err=words).session_gone


def test_pi_answers_with_its_last_message_and_the_sum_of_its_turns() -> None:
    answer = read(
        "pi",
        PI_SESSION,
        pi(stopReason="toolUse", content=[{"type": "text", "text": "let me see"}]),
        pi(
            stopReason="stop",
            content=[{"type": "text", "text": "so "}, {"type": "text", "text": "it is"}],
            responseId="r",
        ),
        PI_END,
    )
    usage = Usage(input_tokens=30, output_tokens=6, cached_tokens=8, reasoning_tokens=0)
    assert answer == Answer(text="so it is", session="s-1", model="m-1", request_id="r", usage=usage)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"stopReason": "error", "errorMessage": '401: {"message":"fake error 401"}'}, Reason.LLM_AUTH),
        ({"stopReason": "error", "errorMessage": '500: {"message":"fake error 500"}'}, Reason.LLM_OVERLOADED),
        ({"stopReason": "error", "errorMessage": "terminated: other side closed"}, Reason.NETWORK_ERROR),
        ({"stopReason": "length", "content": [{"type": "text", "text": "half"}]}, Reason.LLM_BAD_RESPONSE),
    ],
)
def test_pi_exits_with_0_and_fails_all_the_same(message: dict[str, object], reason: Reason) -> None:
    assert read("pi", PI_SESSION, pi(**message), PI_END).reason is reason


def test_an_error_that_a_later_turn_mended_is_none() -> None:
    failed = pi(stopReason="error", errorMessage="500")
    assert read("pi", PI_SESSION, failed, pi(stopReason="stop", content=[]), PI_END).reason is not Reason.LLM_OVERLOADED


def test_no_last_event_is_no_answer_and_says_what_was_said() -> None:
    answer = read("pi", PI_SESSION, pi(stopReason="stop", content=[{"text": "x"}]), err="Killed\n")
    assert (answer.reason, answer.error) == (Reason.LLM_BAD_RESPONSE, "it ended without its last event: Killed")


def test_aider_fails_by_its_text_though_it_exits_with_0() -> None:
    text = "Aider v0.86.2\nlitellm.AuthenticationError: AuthenticationError: invalid key\n"
    assert read("aider", text).reason is Reason.LLM_AUTH
    assert read("aider", "Aider v0.86.2\nIt is done.").text == "Aider v0.86.2\nIt is done."


def test_goose_and_cursor_and_cline_are_read_as_documented() -> None:
    parts = [{"type": "text", "text": "done"}]
    goose = {"messages": [{"role": "assistant", "content": parts}], "metadata": {"status": "completed"}}
    assert read("goose", goose).text == "done"
    assert read("goose", goose, session="n-1").session == "n-1"
    result = {"type": "result", "subtype": "success", "is_error": False, "result": "done", "session_id": "s-1"}
    assert read("cursor", {"type": "system", "model": "m-1"}, result).text == "done"
    assert read("cursor", code=1, err="not logged in").reason is Reason.LLM_AUTH
    run = {"type": "run_result", "text": "done", "finishReason": "completed", "usage": {"inputTokens": 3}}
    assert read("cline", run).usage == Usage(input_tokens=3)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"program": "x", "argv": ["{nonsense}"]}, "agent `x`: `{nonsense}` is nothing that can be put in"),
        (
            {"program": "x", "argv": ["--key", "{api_key}"]},
            "agent `x`: `{api_key}` in argv would show the key to everybody; use `env`",
        ),
        ({"program": "x", "output": "json"}, "agent `x`: `text` must say where the answer stands in its json"),
        ({"program": "x", "output": "jsonl", "text": "a", "cut": ["b"]}, "agent `x`: `cut` takes two rules"),
        (
            {"program": "x", "output": "json", "text": "type=a -> "},
            "`type=a -> ` names no path; write `type=result -> data.text`",
        ),
        ({"program": "x", "wrong": 1}, "agent `x` in the table: Object contains unknown field `wrong`"),
    ],
)
def test_a_row_that_cannot_work_is_refused(row: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=r"agent|names") as refused:
        TableAdapter(row_of(row, "x"))
    assert str(refused.value) == error


@pytest.fixture
def seen() -> list[dict[str, Any]]:
    return [
        {"type": "a", "n": 1, "deep": {"list": [{"t": "x"}, {"t": "y"}]}, "ok": True},
        {"type": "b", "n": 2, "deep": None},
        {"type": "a", "n": 3, "deep": {"list": [{"t": "z"}]}, "ok": False},
    ]


def test_rules_find_the_last_the_first_the_sum_and_all_in_a_row(seen: list[dict[str, Any]]) -> None:
    assert parse("type=a -> n").number(seen) == 3
    assert parse("first type=a -> n").number(seen) == 1
    assert parse("sum type!=b -> n").number(seen) == 4
    assert parse("deep.list.*.t").text(seen) == "z"
    assert parse("join type=a -> deep.list.*.t").text(seen) == "xyz"
    assert parse("ok=true -> deep.list.-1.t").text(seen) == "y"
    assert parse("nothing.here").text(seen) is None
    assert parse("type=a ok -> n").values(seen) == [1]
    assert [parse_conditions("type=a ok=false").meets(event) for event in seen] == [False, False, True]
