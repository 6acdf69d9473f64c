"""A server that answers like `opencode serve`, for tests: what it does is said in the prompt, before the first blank.

Sessions lie in a file of the home folder, so that another process of it finds them again.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

STORE: Final = Path(os.environ["HOME"]) / "sessions.json"
EXPECTED: Final = "Basic " + base64.b64encode(f"opencode:{os.environ['OPENCODE_SERVER_PASSWORD']}".encode()).decode()
sessions: dict[str, Any] = json.loads(STORE.read_text("utf-8")) if STORE.exists() else {}
status: dict[str, Any] = {}
permissions: list[dict[str, Any]] = []


def reply_to(session: str, message: str, **info: Any) -> dict[str, Any]:
    tokens = {"input": 7, "output": 2, "reasoning": 0, "cache": {"read": 1, "write": 0}}
    about = {"role": "assistant", "parentID": message, "modelID": "m-1", "tokens": tokens, "cost": 0, **info}
    made: dict[str, Any] = {"info": {"id": f"msg_{time.time_ns()}", "sessionID": session, **about}, "parts": []}
    sessions[session]["messages"].append(made)
    return made


def prompt(session: str, body: dict[str, Any]) -> None:
    text, message = body["parts"][0]["text"], body["messageID"]
    user = {"info": {"id": message, "role": "user"}, "parts": body["parts"]}
    sessions[session]["messages"].append(user)
    word, _, rest = text.partition(" ")
    if word == "retry":
        reply_to(session, message)
        status[session] = {"type": "retry", "attempt": 1, "message": rest, "next": time.time() * 1000 + 7_000}
    elif word == "error":
        reply_to(session, message, error={"name": "APIError", "data": json.loads(rest)})
    elif word in {"hang", "stubborn"}:
        reply_to(session, message)
        status[session] = {"type": "busy", "stubborn": word == "stubborn"}
    elif word == "permission":
        reply_to(session, message)
        status[session] = {"type": "busy"}
        permissions.append({"id": "per_1", "sessionID": session, "permission": rest, "message": message})
    elif word == "stop":
        reply_to(session, message, finish=rest)
    elif word == "exit":
        os._exit(3)
    else:
        reply_to(session, message, finish="stop")["parts"] = [{"type": "text", "text": f"echo: {text}"}]
    # the test reads it at any time, and several threads write
    fresh = STORE.with_suffix(f".{threading.get_ident()}")
    fresh.write_text(json.dumps(sessions), "utf-8")
    fresh.replace(STORE)


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Say nothing."""

    def answer(self, value: object, code: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        parts = url.path.strip("/").split("/")
        if self.headers["authorization"] != EXPECTED:
            self.answer({}, 401)
        elif parts == ["global", "health"]:
            self.answer({"healthy": True})
        elif parts == ["session", "status"]:
            self.answer(status)
        elif parts == ["session"]:
            wanted = parse_qs(url.query)["search"][0]
            self.answer([s for s in sessions.values() if wanted in s["title"]])
        elif parts[0] == "session" and parts[1] not in sessions:
            self.answer({}, 404)
        elif parts[-1] == "message":
            self.answer(sessions[parts[1]]["messages"])
        elif parts[0] == "session":
            self.answer(sessions[parts[1]])
        else:
            self.answer(permissions if parts == ["permission"] else [])

    def do_POST(self) -> None:
        parts = urlsplit(self.path).path.strip("/").split("/")
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"null")
        if parts == ["session"]:
            number = f"ses_{time.time_ns()}"
            sessions[number] = {"id": number, "title": body["title"], "messages": []}
            self.answer(sessions[number])
        elif parts[-1] == "prompt_async":
            prompt(parts[1], body)
            self.answer({}, 204)
        elif parts[-1] == "abort":
            if not status.get(parts[1], {}).get("stubborn"):
                status.pop(parts[1], None)
            Path("aborted").write_text(parts[1], "utf-8")
            self.answer(True)  # noqa: FBT003 - what the real one answers
        elif parts[0] == "permission":
            asked = permissions.pop()
            session = asked["sessionID"]
            status.pop(session)
            refused = {"status": "error", "error": "The user rejected permission to use this specific tool call."}
            state = refused if body["reply"] == "reject" else {"status": "completed"}
            reply_to(session, asked["message"], finish="stop")["parts"] = [
                {"type": "tool", "tool": asked["permission"], "state": state},
                {"type": "text", "text": "done"},
            ]
            self.answer(True)  # noqa: FBT003 - what the real one answers


if "--broken" in sys.argv:
    sys.stderr.write("no such flag\n")
    sys.exit(2)
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
sys.stdout.write(f"opencode server listening on http://127.0.0.1:{server.server_port}\n")
sys.stdout.flush()
server.serve_forever()
