"""The server says what its script says, in each API's words."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from typing import Any

import pytest
from tests.modelserver.fakellm import FakeLLM

PATHS = {
    "anthropic": "/v1/messages",
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "gemini": "/v1beta/models/m:generateContent",
}
STREAMED = {**PATHS, "gemini": "/v1beta/models/m:streamGenerateContent?alt=sse"}
APIS = sorted(PATHS)


class Refused(Exception):  # noqa: N818 - it is told apart from faults of the test
    """Status, headers and body of an error."""


def asking(api: str, text: str, **more: Any) -> dict[str, Any]:
    if api == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": text}]}], **more}
    said = [{"role": "user", "content": text}]
    return {"model": "m", "input" if api == "responses" else "messages": said, **more}


def ask(server: FakeLLM, path: str, body: dict[str, Any]) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    with contextlib.closing(connection):
        connection.request("POST", path, json.dumps(body).encode())
        with connection.getresponse() as reply:
            found = reply.read().decode()
            if reply.status != 200:
                raise Refused(reply.status, dict(reply.headers), json.loads(found))
            return found


def whole(server: FakeLLM, api: str, text: str) -> Any:
    return json.loads(ask(server, PATHS[api], asking(api, text)))


def text_in(api: str, body: Any) -> str:
    match api:
        case "anthropic":
            found = body["content"][0]["text"]
        case "chat":
            found = body["choices"][0]["message"]["content"]
        case "responses":
            found = body["output"][0]["content"][0]["text"]
        case _:
            found = "".join(part["text"] for part in body["candidates"][0]["content"]["parts"])
    return str(found)


@pytest.mark.parametrize("api", APIS)
def test_what_was_asked_is_echoed_and_logged_to_the_byte(api: str, model_server: FakeLLM) -> None:
    text = "-x\r---\n@f ❤ \x00 ```\n" + "y" * 300_000
    assert text_in(api, whole(model_server, api, text)) == f"echo: {text}"
    assert [(entry["api"], entry["model"], entry["user"]) for entry in model_server.calls()] == [(api, "m", text)]


@pytest.mark.parametrize("api", APIS)
def test_a_stream_holds_the_whole_answer_and_its_end(api: str, model_server: FakeLLM) -> None:
    model_server.script({"text": "abcdefgh", "stop": "length"})
    said = ask(model_server, STREAMED[api], asking(api, "x", stream=True))
    ending = {"anthropic": "max_tokens", "chat": "length", "responses": "max_output_tokens", "gemini": "MAX_TOKENS"}
    assert f'"{ending[api]}"' in said
    assert "".join(piece for piece in ("ab", "cd", "ef", "gh") if piece in said) == "abcdefgh"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("status", [401, 429, 500, 529])
def test_an_error_has_its_status_its_headers_and_the_apis_own_body(
    api: str, status: int, model_server: FakeLLM
) -> None:
    model_server.script({"status": status, "retry_after": 7, "headers": {"x-reset": "9"}, "text": "no"})
    with pytest.raises(Refused) as caught:
        whole(model_server, api, "x")
    code, headers, body = caught.value.args
    assert (code, headers["retry-after"], headers["x-reset"], body["error"]["message"]) == (status, "7", "9", "no")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_cut_answer_never_ends(api: str, streamed: bool, model_server: FakeLLM) -> None:  # noqa: FBT001 - a case
    model_server.script({"cut": True})
    path = (STREAMED if streamed else PATHS)[api]
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        ask(model_server, path, asking(api, "x", stream=streamed))


def test_a_queued_answer_serves_only_what_it_matches_and_as_often_as_it_says(model_server: FakeLLM) -> None:
    model_server.script(
        {"match": "^b$", "text": "for b", "times": 2}, {"match": "model:other", "text": "no"}, default={"text": "rest"}
    )
    said = [text_in("chat", whole(model_server, "chat", text)) for text in ("a", "b", "b", "b")]
    assert said == ["rest", "for b", "for b", "rest"]


def test_a_directive_in_the_prompt_gives_one_step_per_call_and_then_the_last(model_server: FakeLLM) -> None:
    prompt = 'do @@fake [{"text": "one"}, {"text": "two"}] @@'
    assert [text_in("anthropic", whole(model_server, "anthropic", prompt)) for _ in range(3)] == ["one", "two", "two"]


def test_a_tool_is_asked_for_and_its_result_is_said(model_server: FakeLLM) -> None:
    model_server.script(default={"tool": {"name": "shell", "input": {"command": "id"}}})
    tools = [{"type": "function", "function": {"name": "bash"}}]
    first = json.loads(ask(model_server, PATHS["chat"], asking("chat", "x", tools=tools)))
    wanted = first["choices"][0]["message"]["tool_calls"][0]["function"]
    assert wanted == {"name": "bash", "arguments": '{"command": "id"}'}
    answered = asking("chat", "x", tools=tools)
    answered["messages"] += [{"role": "tool", "tool_call_id": "t", "content": "root"}]
    assert text_in("chat", json.loads(ask(model_server, PATHS["chat"], answered))) == "tool said: root"


def test_usage_is_what_the_script_says(model_server: FakeLLM) -> None:
    model_server.script({"usage": {"in": 5, "out": 6, "cached": 2}})
    assert whole(model_server, "chat", "x")["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 6,
        "total_tokens": 11,
        "prompt_tokens_details": {"cached_tokens": 2},
    }


def test_a_hanging_call_ends_with_the_server() -> None:
    with FakeLLM() as server:
        server.script({"hang": True})
        ended = threading.Event()

        def call() -> None:
            with pytest.raises((http.client.HTTPException, OSError)):
                whole(server, "chat", "x")
            ended.set()

        caller = threading.Thread(target=call)
        caller.start()
        while not server.calls():
            assert caller.is_alive()
            caller.join(0.01)
        assert not ended.is_set()
    caller.join(20)
    assert ended.is_set()


def test_an_unknown_path_is_refused_and_logged(model_server: FakeLLM) -> None:
    with pytest.raises(Refused):
        ask(model_server, "/v1/else", {})
    assert [entry["path"] for entry in model_server.log("other")] == ["POST /v1/else"]
