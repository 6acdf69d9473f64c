"""An agent that speaks ACP, for tests: what it does is said in the prompt, a word before the first blank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sessions: list[str] = []


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def hear() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    message: dict[str, Any] = json.loads(line)
    return message


def update(session: str, what: str, **more: Any) -> None:
    say({"method": "session/update", "params": {"sessionId": session, "update": {"sessionUpdate": what, **more}}})


def chunk(session: str, text: str) -> None:
    update(session, "agent_message_chunk", content={"type": "text", "text": text})


def ask_permission(session: str, kind: str, path: str) -> str:
    call = {"toolCallId": "1", "title": f"{kind} {path}", "kind": kind, "locations": [{"path": path}]}
    options = [{"optionId": "y", "kind": "allow_once"}, {"optionId": "n", "kind": "reject_once"}]
    say(
        {
            "id": 900,
            "method": "session/request_permission",
            "params": {"sessionId": session, "toolCall": call, "options": options},
        }
    )
    outcome = hear()["result"]["outcome"]
    return str(outcome.get("optionId", "cancelled"))


def turn(number: int, session: str, prompt: str) -> None:  # noqa: C901, PLR0912 - a branch for each word
    word, _, rest = prompt.partition(" ")
    stop = "end_turn"
    if word == "tool":
        chunk(session, "let me look")
        update(session, "tool_call", toolCallId="1", title="look", kind="read")
        chunk(session, "found it")
    elif word == "permission":
        kind, path = rest.split()
        update(session, "tool_call", toolCallId="1", title=kind, kind=kind)
        chunk(session, ask_permission(session, kind, path))
    elif word == "error":
        say({"id": number, "error": json.loads(rest)})
        return
    elif word == "text":
        for part in json.loads(rest):
            chunk(session, part)
    elif word == "stop":
        chunk(session, "half")
        stop = rest
    elif word == "exit":
        sys.stderr.write("boom on stderr\n")
        sys.stderr.flush()
        os._exit(3)
    elif word == "unknown-request":
        say({"id": 901, "method": "fs/read_text_file", "params": {}})
        chunk(session, json.dumps(hear()["error"]["code"]))
    elif word == "hang":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        chunk(session, "working")
        while True:
            message = hear()
            if message.get("method") == "session/cancel" and rest != "for-ever":
                stop = "cancelled"
                Path("cancelled").write_text(session, "utf-8")
                break
    elif word == "pid":
        chunk(session, str(os.getpid()))
    elif word == "size":
        chunk(session, str(len(rest)))
    elif word == "env":
        chunk(session, os.environ.get(rest, "absent"))
    else:
        chunk(session, f"echo: {prompt}")
    say(
        {
            "id": number,
            "result": {"stopReason": stop, "usage": {"inputTokens": 10, "outputTokens": 2, "cachedReadTokens": 5}},
        }
    )


def main() -> None:
    while True:
        message = hear()
        number, method, params = message.get("id", 0), message.get("method"), message.get("params", {})
        if method == "initialize":
            about = {"protocolVersion": 1, "agentCapabilities": {"loadSession": "--load" in sys.argv}}
            say({"id": number, "result": about})
        elif method == "session/new":
            sessions.append(f"s{os.getpid()}-{time.monotonic_ns()}")
            models = {"models": {"currentModelId": "m-0", "availableModels": []}} if "--models" in sys.argv else {}
            say({"id": number, "result": {"sessionId": sessions[-1], **models}})
        elif method == "session/load":
            if "gone" in params["sessionId"]:
                say({"id": number, "error": {"code": -32603, "message": "Internal error"}})
            else:
                chunk(params["sessionId"], "what was said long ago")
                say({"id": number, "result": {}})
        elif method == "session/set_model":
            if params["modelId"] == "m-bad":
                say({"id": number, "error": {"code": -32602, "message": "Invalid params"}})
            else:
                say({"id": number, "result": {}})
        elif method == "session/prompt":
            turn(number, params["sessionId"], params["prompt"][0]["text"])


main()
