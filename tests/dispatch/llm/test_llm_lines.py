"""Calls that are broken off, and endpoints that keep no promise of their API."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import trustme
from tests.dispatch.prompting import Prompts
from tests.dispatch.shop import until

from interlock.dispatch.base import Outcome
from interlock.dispatch.llm.base import Ask
from interlock.dispatch.llm.deadlines import Deadlines
from interlock.dispatch.llm.line import Line, trust
from interlock.dispatch.llm.openai_api import OpenAiApi
from interlock.model.states import Reason

Answering = Callable[[bytes], str]
OPENAI_ERROR = b'{"error":{"message":"upstream is overloaded","code":503}}'


@pytest.fixture
def answering() -> Iterator[Answering]:
    """Start servers that answer every connection with the same bytes."""
    servers: list[tuple[socket.socket, threading.Thread]] = []

    def start(answer: bytes) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=serve, args=(server, answer), daemon=True)
        servers.append((server, thread))
        thread.start()
        return f"http://127.0.0.1:{server.getsockname()[1]}"

    yield start
    for server, thread in servers:
        # a thread left waiting in accept() keeps a descriptor for the next connection, which is listed nowhere
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(10)
        assert not thread.is_alive()


def serve(server: socket.socket, answer: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(65_536)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass


def http(body: bytes, kind: str = "application/json", status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return head.encode() + body


def ask(prompts: Prompts, driver: str, url: str, idle_timeout_ms: int | None = None) -> Outcome:
    prompts.engines[driver] = msgspec.structs.replace(prompts.engines[driver], base_url=url)
    return prompts.ask(driver, idle_timeout_ms=idle_timeout_ms)


@pytest.mark.parametrize("driver", ["openai", "anthropic", "gemini"])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (http(b"<html>Sign in to the hotel's network</html>", "text/html"), Reason.LLM_BAD_RESPONSE),
        (http(b"{}"), Reason.LLM_BAD_RESPONSE),
        (http(b"[]"), Reason.LLM_BAD_RESPONSE),
        (http(b'{"id"'), Reason.LLM_BAD_RESPONSE),
        (http(b"<html>Bad gateway</html>", "text/html", "502 Bad Gateway"), Reason.LLM_OVERLOADED),
        (http(b"", status="429 Too Many Requests"), Reason.LLM_RATE_LIMIT),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Reason.NETWORK_ERROR),
        (b"", Reason.NETWORK_ERROR),
    ],
)
def test_what_is_no_answer_of_the_api_is_a_failure(
    prompts: Prompts, answering: Answering, driver: str, answer: bytes, reason: Reason
) -> None:
    outcome = ask(prompts, driver, answering(answer))
    assert (outcome.status, outcome.reason) == ("failed", reason), outcome.error
    assert outcome.error.startswith(f"engine `{driver}` at http://127.0.0.1:")
    assert "\n" not in outcome.error


def test_an_error_in_the_body_of_a_good_status_is_an_error(prompts: Prompts, answering: Answering) -> None:
    outcome = ask(prompts, "openai", answering(http(OPENAI_ERROR)))
    assert outcome.reason is Reason.LLM_OVERLOADED
    assert outcome.error.endswith("HTTP 503: upstream is overloaded")


def test_a_refusal_is_told(prompts: Prompts, answering: Answering) -> None:
    body = b'{"id":"x","model":"m","choices":[{"finish_reason":"stop","message":{"content":null,"refusal":"I will not."}}]}'
    outcome = ask(prompts, "openai", answering(http(body)))
    assert outcome.reason is Reason.LLM_CONTENT_FILTER
    assert outcome.error.endswith("the model refused: I will not.")


def test_an_answer_without_usage_has_unknown_usage(prompts: Prompts, answering: Answering) -> None:
    body = b'{"id":"x","model":"m","choices":[{"message":{"content":"fine"}}]}'
    outcome = ask(prompts, "openai", answering(http(body)))
    assert (outcome.status, outcome.output, outcome.usage) == ("ok", b"fine", None)


@pytest.mark.parametrize(
    ("driver", "body", "reason"),
    [
        (
            "openai",
            b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"half"},"finish_reason":null}]}\n\n',
            Reason.NETWORK_ERROR,
        ),
        (
            "gemini",
            b'data: {"candidates":[{"content":{"parts":[{"text":"half"}]}}]}\n\n',
            Reason.NETWORK_ERROR,
        ),
        (
            "anthropic",
            b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
            Reason.LLM_OVERLOADED,
        ),
    ],
)
def test_a_stream_without_its_last_event_is_no_answer(
    prompts: Prompts, answering: Answering, driver: str, body: bytes, reason: Reason
) -> None:
    outcome = ask(prompts, driver, answering(http(body, "text/event-stream")), idle_timeout_ms=20_000)
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", reason, False), outcome.error


def test_a_call_over_tls_is_broken_off_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, trusted = trustme.CA(), tmp_path / "authority"
    authority.cert_pem.write_to_path(trusted)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    trust.cache_clear()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    got = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=hold, args=(server, context, got))
        thread.start()
        line = Line()
        api = OpenAiApi(f"https://localhost:{server.getsockname()[1]}/v1", "k", line)
        breaker = threading.Thread(target=break_off, args=(line, got))
        breaker.start()
        began = time.monotonic()
        with pytest.raises(Exception, match="Connection error"):
            api.complete(Ask(model="m", prompt="x"))
        assert time.monotonic() - began < 15
        line.close()
        breaker.join(20)
        thread.join(20)
    trust.cache_clear()


def break_off(line: Line, got: threading.Event) -> None:
    got.wait(20)
    line.interrupt()


def hold(server: socket.socket, context: ssl.SSLContext, got: threading.Event) -> None:
    """Take a request and never answer it."""
    connection, _ = server.accept()
    with context.wrap_socket(connection, server_side=True) as held, contextlib.suppress(OSError):
        held.recv(65_536)
        got.set()
        while held.recv(65_536):
            pass


def test_an_interrupted_line_is_replaced_for_the_next_call(prompts: Prompts) -> None:
    assert prompts.ask(timeout_ms=1).reason in {Reason.TIMEOUT, None}
    assert prompts.ask().status == "ok"


def test_a_deadline_that_passes_calls_once_and_one_that_is_kept_never() -> None:
    deadlines, passed, kept = Deadlines(), [], []
    with deadlines.within(60, lambda: kept.append(1)), deadlines.within(0.01, lambda: passed.append(1)):
        until(lambda: passed)
    with deadlines.within(0.01, lambda: kept.append(1)):
        pass
    with deadlines.within(None, lambda: kept.append(1)), deadlines.within(0.03, lambda: passed.append(2)):
        until(lambda: len(passed) == 2)
    deadlines.close()
    deadlines.close()
    assert (passed, kept) == ([1, 2], [])
