"""LLM APIs through the official SDKs, against the scripted server: what arrives there, and what comes back."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.dispatch.prompting import KEY, Prompts
from tests.dispatch.shop import until
from tests.modelserver.fakellm import FakeLLM

from interlock.model.events import Answered, Usage
from interlock.model.states import Reason

DRIVERS = ("openai", "anthropic", "gemini")
ODD = "---\n- @file\r\nlone \r CR, \x00 NUL, 🙂 emoji\n```json\n{}\n```\n" + "x" * 300_000
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}

pytestmark = pytest.mark.parametrize("driver", DRIVERS)


def body_of(server: FakeLLM, index: int = -1) -> dict[str, Any]:
    body: dict[str, Any] = server.calls()[index]["body"]
    return body


def prompt_in(driver: str, body: dict[str, Any]) -> str:
    if driver == "gemini":
        text: str = body["contents"][0]["parts"][0]["text"]
    else:
        text = body["messages"][0]["content"]
    return text


@pytest.mark.parametrize("idle_timeout_ms", [None, 20_000])
def test_a_prompt_arrives_byte_for_byte_and_the_answer_comes_back(
    prompts: Prompts, model_server: FakeLLM, driver: str, idle_timeout_ms: int | None
) -> None:
    outcome = prompts.ask(driver, ODD, idle_timeout_ms=idle_timeout_ms)
    assert outcome.status == "ok", outcome.error
    assert outcome.output.decode() == "echo: " + ODD
    assert (outcome.is_json, outcome.answered, outcome.reason, outcome.notices) == (False, True, None, ())
    assert prompt_in(driver, body_of(model_server)) == ODD
    assert model_server.calls()[-1]["stream"] is (idle_timeout_ms is not None)


@pytest.mark.parametrize("idle_timeout_ms", [None, 20_000])
def test_who_answered_and_what_it_took_is_told(
    prompts: Prompts, model_server: FakeLLM, driver: str, idle_timeout_ms: int | None
) -> None:
    model_server.script({"text": "yes", "usage": {"in": 100, "out": 7, "cached": 40}})
    outcome = prompts.ask(driver, model="a-model", idle_timeout_ms=idle_timeout_ms)
    # Anthropic counts cached tokens beside its input, the others within
    put_in = 140 if driver == "anthropic" else 100
    expected = Usage(input_tokens=put_in, output_tokens=7, cached_tokens=40, cost_usd=None)
    assert outcome.usage is not None
    assert outcome.usage.reasoning_tokens is None
    assert outcome.usage == expected
    assert outcome.answered_by is not None
    assert outcome.answered_by.model == "a-model"
    assert outcome.answered_by.request_id


def test_settings_are_passed_on(prompts: Prompts, model_server: FakeLLM, driver: str) -> None:
    extra = {"generationConfig": {"topK": 5}} if driver == "gemini" else {"top_k": 5}
    prompts.ask(driver, temperature=0.25, max_tokens=99, extra_params_json=json.dumps(extra))
    body = body_of(model_server)
    if driver == "gemini":
        assert body["generationConfig"] == {"temperature": 0.25, "maxOutputTokens": 99, "topK": 5}
    else:
        assert (body["temperature"], body["max_tokens"], body["top_k"]) == (0.25, 99, 5)


def test_what_is_not_set_is_not_sent(prompts: Prompts, model_server: FakeLLM, driver: str) -> None:
    prompts.ask(driver)
    body = body_of(model_server)
    expected = {
        "openai": {"model", "messages"},
        "anthropic": {"model", "messages", "max_tokens"},
        "gemini": {"contents"},
    }
    assert {key for key, value in body.items() if value not in ({}, None)} == expected[driver]


def test_a_schema_is_enforced_by_the_api(prompts: Prompts, model_server: FakeLLM, driver: str) -> None:
    model_server.script({"json": {"n": 1}})
    outcome = prompts.ask(driver, "count", schema_json=json.dumps(SCHEMA))
    assert json.loads(outcome.output) == {"n": 1}
    body = body_of(model_server)
    match driver:
        case "openai":
            assert body["response_format"] == {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
            }
        case "anthropic":
            assert body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
        case _:
            assert body["generationConfig"] == {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}
    assert prompt_in(driver, body) == "count"


def test_a_refused_schema_goes_into_the_prompt_for_the_rest_of_the_run(
    prompts: Prompts, model_server: FakeLLM, driver: str
) -> None:
    words = "response_format and output_config.format with a response_json_schema are not supported here"
    model_server.script({"status": 400, "text": words})
    first = prompts.ask(driver, "count", schema_json=json.dumps(SCHEMA))
    second = prompts.ask(driver, "again", schema_json=json.dumps(SCHEMA))
    assert (first.status, second.status) == ("ok", "ok")
    assert first.notices == (f"engine `{driver}` does not enforce this schema, so the prompt carries it: {words}",)
    assert second.notices == ()
    assert len(model_server.calls()) == 3
    for index, asked in ((1, "count"), (2, "again")):
        text = prompt_in(driver, body_of(model_server, index))
        assert text.startswith(f"{asked}\n\n---\nAnswer with one JSON value")
        assert json.dumps(SCHEMA) in text


FAILURES = [
    ({"status": 401}, Reason.LLM_AUTH, "HTTP 401: fake error 401", True),
    ({"status": 403}, Reason.LLM_AUTH, "HTTP 403: fake error 403", True),
    ({"status": 404}, Reason.LLM_BAD_RESPONSE, "HTTP 404: fake error 404", True),
    ({"status": 413}, Reason.PROMPT_TOO_LARGE, "HTTP 413: fake error 413", True),
    ({"status": 429}, Reason.LLM_RATE_LIMIT, "HTTP 429: fake error 429", True),
    ({"status": 500}, Reason.LLM_OVERLOADED, "HTTP 500: fake error 500", True),
    ({"status": 503}, Reason.LLM_OVERLOADED, "HTTP 503: fake error 503", True),
    ({"status": 529}, Reason.LLM_OVERLOADED, "HTTP 529: fake error 529", True),
    ({"status": 402}, Reason.LLM_QUOTA, "HTTP 402: fake error 402", True),
    ({"status": 400}, Reason.LLM_BAD_RESPONSE, "HTTP 400: fake error 400", True),
    (
        {"status": 400, "text": "This model's maximum context length is 8192 tokens"},
        Reason.LLM_CONTEXT_LENGTH,
        "HTTP 400: This model's maximum context length is 8192 tokens",
        True,
    ),
    (
        {"status": 400, "text": "blocked by our content_filter"},
        Reason.LLM_CONTENT_FILTER,
        "HTTP 400: blocked by our content_filter",
        True,
    ),
    (
        {"stop": "length"},
        Reason.LLM_BAD_RESPONSE,
        "the answer was cut off at max_tokens (20); raise `max_tokens` or ask for less",
        True,
    ),
]


@pytest.mark.parametrize(("step", "reason", "error", "answered"), FAILURES)
def test_an_error_becomes_a_reason_that_names_the_engine(
    prompts: Prompts,
    model_server: FakeLLM,
    driver: str,
    step: dict[str, Any],
    reason: Reason,
    error: str,
    *,
    answered: bool,
) -> None:
    model_server.script(step)
    outcome = prompts.ask(driver, max_tokens=20)
    base = prompts.engines[driver].base_url
    assert (outcome.status, outcome.reason) == ("failed", reason)
    assert outcome.error == f"engine `{driver}` at {base}: {error}"
    assert outcome.answered is answered
    assert outcome.output == b""
    assert len(model_server.calls()) == 1


@pytest.mark.parametrize("idle_timeout_ms", [None, 20_000])
def test_a_cut_answer_is_a_network_error(
    prompts: Prompts, model_server: FakeLLM, driver: str, idle_timeout_ms: int | None
) -> None:
    model_server.script({"cut": True, "text": "a long answer that breaks off"})
    outcome = prompts.ask(driver, idle_timeout_ms=idle_timeout_ms)
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", Reason.NETWORK_ERROR, False)
    assert "peer closed connection" in outcome.error
    assert len(model_server.calls()) == 1


def test_an_unreachable_endpoint_was_surely_not_asked(prompts: Prompts, driver: str) -> None:
    prompts.engines[driver] = type(prompts.engines[driver])(
        name=driver, kind="llm", driver=driver, base_url="http://127.0.0.1:9", api_key="THE_KEY"
    )
    outcome = prompts.ask(driver)
    assert (outcome.reason, outcome.answered) == (Reason.NETWORK_ERROR, True)
    assert outcome.error.startswith(f"engine `{driver}` at http://127.0.0.1:9: ConnectError: ")


@pytest.mark.parametrize(
    ("headers", "wait_ms"),
    [({"retry-after": "7"}, 7_000), ({"retry-after-ms": "1500"}, 1_500)],
)
def test_a_rate_limit_says_how_long_to_wait(
    prompts: Prompts, model_server: FakeLLM, driver: str, headers: dict[str, str], wait_ms: int
) -> None:
    model_server.script({"status": 429, "headers": headers})
    outcome = prompts.ask(driver)
    assert (outcome.reason, outcome.retry_after_ms) == (Reason.LLM_RATE_LIMIT, wait_ms)
    assert outcome.quota_until is None


def test_a_limit_that_lifts_only_in_an_hour_is_a_quota(prompts: Prompts, model_server: FakeLLM, driver: str) -> None:
    before = time.time_ns() // 1_000_000
    model_server.script({"status": 429, "retry_after": 3_600})
    outcome = prompts.ask(driver)
    assert (outcome.reason, outcome.retry_after_ms) == (Reason.LLM_QUOTA, None)
    assert outcome.quota_until is not None
    assert 0 <= outcome.quota_until - before - 3_600_000 < 30_000


def test_an_empty_answer_is_an_answer(prompts: Prompts, model_server: FakeLLM, driver: str) -> None:
    model_server.script({"text": ""})
    outcome = prompts.ask(driver)
    assert (outcome.status, outcome.output) == ("ok", b"")


def test_an_answer_above_the_limit_is_too_large(prompts: Prompts, model_server: FakeLLM, driver: str) -> None:
    model_server.script({"text": "x" * 1001})
    outcome = prompts.ask(driver, max_result_bytes=1000)
    assert (outcome.status, outcome.reason) == ("failed", Reason.OUTPUT_TOO_LARGE)
    assert outcome.error == "the answer is larger than 1000 bytes (max_result_bytes of [limits]); ask for less"
    assert outcome.usage is not None


def test_a_call_that_never_ends_is_timed_out(prompts: Prompts, model_server: FakeLLM, driver: str) -> None:
    model_server.script({"hang": True})
    outcome = prompts.ask(driver, timeout_ms=200)
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", Reason.TIMEOUT, False)
    assert outcome.error == "timed out after 200ms"


def test_a_stream_that_stalls_is_idle_but_a_slow_one_is_not(
    prompts: Prompts, model_server: FakeLLM, driver: str
) -> None:
    model_server.script({"hang": True}, {"text": "slow but steady", "chunk_delay": 0.4})
    stalled = prompts.ask(driver, idle_timeout_ms=300)
    assert (stalled.reason, stalled.answered) == (Reason.IDLE_TIMEOUT, False)
    assert stalled.error == "nothing came for 300ms"
    assert prompts.ask(driver, idle_timeout_ms=2_000).output == b"slow but steady"


def test_a_cancelled_call_ends_at_once(prompts: Prompts, model_server: FakeLLM, driver: str) -> None:
    model_server.script({"hang": True})
    request = prompts.start(driver)
    until(model_server.calls)
    began = time.monotonic()
    prompts.runner.cancel([request.dispatch], 60.0)
    outcome = prompts.outcome(request)
    assert (outcome.status, outcome.reason, outcome.error) == ("aborted", Reason.ABORTED, "cancelled")
    assert outcome.answered is False
    assert time.monotonic() - began < 10


def test_the_key_is_sent_and_never_told(prompts: Prompts, model_server: FakeLLM, driver: str) -> None:
    model_server.script({"echo": True}, {"status": 401, "text": f"the key {KEY} is wrong"})
    answer = prompts.ask(driver, f"my key is {KEY}")
    refusal = prompts.ask(driver)
    sent = {
        "openai": ("authorization", f"Bearer {KEY}"),
        "anthropic": ("x-api-key", KEY),
        "gemini": ("x-goog-api-key", KEY),
    }
    name, value = sent[driver]
    assert model_server.calls()[0]["headers"][name] == value
    assert answer.output == b"echo: my key is [redacted:THE_KEY]"
    assert refusal.error.endswith("HTTP 401: the key [redacted:THE_KEY] is wrong")
    assert KEY.encode() not in prompts.log_path.read_bytes()


def test_many_prompts_at_a_time_lose_nothing(prompts: Prompts, model_server: FakeLLM, driver: str) -> None:
    model_server.script(default={"echo": True, "delay": 0.02, "usage": {"in": 10, "out": 3}})
    requests = [prompts.start(driver, f"prompt {number}") for number in range(60)]
    outcomes = [prompts.outcome(request) for request in requests]
    assert [o.output.decode() for o in outcomes] == [f"echo: prompt {number}" for number in range(60)]
    assert sum((o.usage.input_tokens or 0) + (o.usage.output_tokens or 0) for o in outcomes if o.usage) == 60 * 13
    assert len(model_server.calls()) == 60
    assert all(isinstance(o.answered_by, Answered) for o in outcomes)
