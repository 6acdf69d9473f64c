"""A scripted model server on loopback, for tests: Anthropic, OpenAI chat and responses, Gemini; whole or streamed.

In process: `with FakeLLM() as server: server.url; server.script(step, ..); server.log()`; alone: `python -m
tests.modelserver.fakellm --port-file P`, then `POST /__script {"steps": [..], "default": step}`, `GET /__log?body=1`,
`POST /__reset`. Keys of a step, all optional: `match` (regex on the newest user text, or `model:`/`api:`/`any:REGEX`; any: user text),
`times`
| `echo`, `text`, `json` (as text, or through the client's structured-output tool), `tool` {name ("shell": the client's
own), input} | `status`, `retry_after`, `headers`, `error` (fields of the error body) | `delay`, `chunk_delay` (seconds),
`cut` (the answer dies half-way), `hang` (never answers), `stop` ("length"), `usage` {in, out, cached}.
Every answer is decided by `script.py`; an unknown path is a 404 and logged too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.modelserver import calls, errors, shapes
from tests.modelserver.answers import Answer, answer
from tests.modelserver.calls import Call
from tests.modelserver.script import Entry, Script, Step

MODELS = ("fake-model", "gpt-5", "claude-sonnet-4-5", "gemini-2.5-pro")
ENDPOINTS = {"/messages": "anthropic", "/chat/completions": "chat", "/responses": "responses"}
KEPT_HEADERS = frozenset(
    {
        "user-agent",
        "authorization",
        "x-api-key",
        "x-goog-api-key",
        "anthropic-version",
        "anthropic-beta",
        "idempotency-key",
        "x-stainless-retry-count",
        "session_id",
        "x-client-request-id",
    }
)


class Server(ThreadingHTTPServer):
    """Keeps its script and its open connections, so that stopping ends every one of them."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.script = Script()
        self.stopping = threading.Event()
        self.open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.open.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no fault of a test."""

    def stop(self) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()
        for connection in list(self.open):
            kill(connection)


def kill(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it was gone already


class Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Say nothing; the log is in the script."""

    def do_HEAD(self) -> None:
        self.give(200, {})

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/__log":
            self.give(200, self.server.script.log(bodies="body" in parse_qs(url.query)))
        elif url.path.endswith("/models"):
            self.server.script.note({"api": "models", "path": self.path, "status": 200})
            self.give(200, model_list(gemini="/v1beta" in url.path))
        else:
            self.unknown()

    def do_POST(self) -> None:
        try:
            body = self.body()
        except ValueError as fault:
            self.server.script.note({"api": "other", "path": f"POST {self.path}", "status": 400, "reply": str(fault)})
            self.give(400, {"error": {"message": str(fault)}})
            return
        path = urlsplit(self.path).path
        if path in ("/__script", "/__reset"):
            self.control(path, body)
        elif path.endswith(("/messages/count_tokens", ":countTokens")):
            count = len(json.dumps(body)) // 4
            self.give(200, {"input_tokens": count, "totalTokens": count})
        elif call := asked(path, body):
            self.serve(call)
        else:
            self.unknown()

    def control(self, path: str, body: dict[str, Any]) -> None:
        script = self.server.script
        if path == "/__reset":
            with script.lock:
                script.clear()
        else:
            script.add(body.get("steps", []), body.get("default"), replace=bool(body.get("replace")))
        self.give(200, {"ok": True})

    def unknown(self) -> None:
        self.server.script.note({"api": "other", "path": f"{self.command} {self.path}", "status": 404})
        self.give(404, {"error": {"message": "no such path", "type": "not_found"}})

    def serve(self, call: Call) -> None:
        script = self.server.script
        step = script.pick(call)
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() in KEPT_HEADERS}
        entry = script.note(logged(call, step, self.path, headers))
        if step.get("delay"):
            self.server.stopping.wait(step["delay"])
        if step.get("hang"):
            self.server.stopping.wait()
            self.close_connection = True
            return
        if step.get("status"):
            entry["status"] = step["status"]
            self.give(*errors.error(step, call))
            return
        said = answer(step, call)
        entry["reply"] = {"tool": [said.tool.name, said.tool.input]} if said.tool else said.text[:500]
        entry["usage"] = {"in": said.input_tokens, "out": said.output_tokens, "cached": said.cached_tokens}
        try:
            self.reply(call, step, said)
        except (BrokenPipeError, ConnectionResetError):
            entry["status"] = "client gone"

    def reply(self, call: Call, step: Step, said: Answer) -> None:
        if call.stream and (call.api != "gemini" or "alt=sse" in self.path):
            self.stream(step, shapes.EVENTS[call.api](call, said))
            return
        body: Any = shapes.BODIES[call.api](call, said)
        named = [("request-id" if call.api == "anthropic" else "x-request-id", shapes.fresh("req_"))]
        self.give(200, [body] if call.stream else body, named, cut=bool(step.get("cut")))

    def give(self, status: int, value: Any, headers: shapes.Headers | None = None, *, cut: bool = False) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, told in [("content-type", "application/json"), ("content-length", str(len(data))), *(headers or [])]:
            self.send_header(name, told)
        self.end_headers()
        if cut:
            self.wfile.write(data[: len(data) // 2])
            self.cut()
        elif self.command != "HEAD":
            self.wfile.write(data)

    def stream(self, step: Step, events: list[shapes.Event]) -> None:
        self.send_response(200)
        for name, told in (("content-type", "text/event-stream"), ("transfer-encoding", "chunked")):
            self.send_header(name, told)
        self.end_headers()
        for event, data in events[: len(events) // 2] if step.get("cut") else events:
            lines = f"event: {event}\n" if event else ""
            text = data if isinstance(data, str) else json.dumps(data)
            chunk = f"{lines}data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            if step.get("chunk_delay"):
                self.server.stopping.wait(step["chunk_delay"])
        if step.get("cut"):
            self.cut()
        else:
            self.wfile.write(b"0\r\n\r\n")

    def cut(self) -> None:
        self.close_connection = True
        kill(self.connection)

    def body(self) -> dict[str, Any]:
        if "chunked" in (self.headers.get("transfer-encoding") or "").lower():
            data = self.chunks()
        else:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
        encoding = (self.headers.get("content-encoding") or "").lower()
        if encoding == "zstd":
            raise ValueError("zstd request body: turn request compression off in the client")
        found: dict[str, Any] = json.loads((gzip.decompress(data) if encoding == "gzip" else data) or b"{}")
        return found

    def chunks(self) -> bytes:
        data = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data


def asked(path: str, body: dict[str, Any]) -> Call | None:
    """Return the model call that a POST to `path` is, if it is one."""
    if found := re.search(r"/models/([^/:]+):(generateContent|streamGenerateContent)$", path):
        return calls.read("gemini", found.group(1), body, stream=found.group(2).startswith("stream"))
    for ending, api in ENDPOINTS.items():
        if path.endswith(ending):
            return calls.read(api, str(body.get("model")), body, stream=bool(body.get("stream")))
    return None


def logged(call: Call, step: Step, path: str, headers: dict[str, str]) -> Entry:
    return {
        "api": call.api,
        "path": path,
        "model": call.model,
        "stream": call.stream,
        "user": call.user,
        "system_len": len(call.system),
        "n_messages": call.n_messages,
        "tools": call.tools,
        "headers": headers,
        "step": step,
        "body": call.body,
        "status": 200,
    }


def model_list(*, gemini: bool) -> dict[str, Any]:
    if gemini:
        limits = {"inputTokenLimit": 100_000, "outputTokenLimit": 8192}
        able = {"supportedGenerationMethods": ["generateContent"], **limits}
        return {"models": [{"name": f"models/{name}", **able} for name in MODELS]}
    made = {"created": 1, "created_at": "2025-01-01T00:00:00Z", "owned_by": "fake"}
    data = [{"id": name, "display_name": name, "object": "model", "type": "model", **made} for name in MODELS]
    return {"object": "list", "has_more": False, "models": [], "data": data}


class FakeLLM:
    """The server within this process, on a thread of its own."""

    def __init__(self, port: int = 0) -> None:
        self.httpd = Server(port)
        self.port: int = self.httpd.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.httpd.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def script(self, *steps: Step, default: Step | None = None) -> None:
        """Queue answers, and set what is answered when none is queued."""
        self.httpd.script.add(list(steps), default)

    def reset(self) -> None:
        """Forget script and log."""
        with self.httpd.script.lock:
            self.httpd.script.clear()

    def log(self, api: str | None = None) -> list[Entry]:
        """What was asked so far, of one API or all: the entries hold the bodies."""
        return [entry for entry in self.httpd.script.log(bodies=True) if api in (None, entry["api"])]

    def calls(self) -> list[Entry]:
        """The model calls alone."""
        return [entry for entry in self.log() if entry["api"] not in ("models", "other")]

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.httpd.stop()
        self.thread.join()


def main() -> None:
    """Serve until interrupted."""
    options = argparse.ArgumentParser(description="A scripted model server on loopback.")
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--port-file", type=Path)
    given = options.parse_args()
    server = Server(given.port)
    port: int = server.server_address[1]
    if given.port_file:
        given.port_file.write_text(str(port))
    print(f"fakellm on http://127.0.0.1:{port}", flush=True)  # noqa: T201 - it is a program of its own
    try:
        server.serve_forever(0.1)
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
