"""What an API's words and figures mean: quotas and passing limits, waits in every spelling, odd endings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from interlock.dispatch.env.redact_base import UNREDACTED_CHARS
from interlock.dispatch.llm.base import Ask, Finish, Reply, Trouble
from interlock.dispatch.llm.failures import failure_in, failure_of, refuses_schema
from interlock.dispatch.llm.native_schema import closed, requires_all
from interlock.dispatch.llm.prices import cost_usd
from interlock.dispatch.llm.retry_after import retry_after_ms, wait_ms
from interlock.model.events import Usage
from interlock.model.states import Reason

NOW_MS = 1_800_000_000_000
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
SOON = NOW + timedelta(seconds=90)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7_000),
        ("0.25", 250),
        ("0", 0),
        ("500ms", 500),
        ("6m0s", 360_000),
        ("1h2m3.5s", 3_723_500),
        ("34s", 34_000),
        (str(NOW_MS // 1000 + 90), 90_000),
        (str(NOW_MS // 1000 - 90), 0),
        (format_datetime(SOON, usegmt=True), 90_000),
        (SOON.isoformat().replace("+00:00", "Z"), 90_000),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1e9", None),
        ("12 parsecs", None),
    ],
)
def test_a_wait_is_read_in_every_spelling(text: str, expected: int | None) -> None:
    assert wait_ms(text, NOW_MS) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3_000),
        ({"retry-after": "3", "retry-after-ms": "250"}, 250),
        ({"retry-after": "nonsense"}, None),
        ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "0"}, 360_000),
        ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "10"}, None),
        (
            {
                "anthropic-ratelimit-requests-reset": SOON.isoformat(),
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-tokens-reset": (SOON + timedelta(hours=1)).isoformat(),
                "anthropic-ratelimit-tokens-remaining": "7",
            },
            90_000,
        ),
    ],
)
def test_the_wait_is_that_of_the_limit_that_is_spent(headers: dict[str, str], expected: int | None) -> None:
    assert retry_after_ms(headers, NOW_MS) == expected


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (Trouble(status=429, message="slow down", code="rate_limit_exceeded"), Reason.LLM_RATE_LIMIT),
        (Trouble(status=429, message="You exceeded your current quota", code="insufficient_quota"), Reason.LLM_QUOTA),
        (Trouble(status=429, message="limit", headers={"retry-after": "301"}), Reason.LLM_QUOTA),
        (Trouble(status=429, message="limit", headers={"retry-after": "300"}), Reason.LLM_RATE_LIMIT),
        (Trouble(status=429, message="You exceeded your current quota", quota=False), Reason.LLM_RATE_LIMIT),
        (Trouble(status=429, message="limit", quota=True), Reason.LLM_QUOTA),
        (Trouble(status=400, message="Your credit balance is too low to access the API"), Reason.LLM_QUOTA),
        (Trouble(status=400, message="API key not valid. Please pass a valid API key."), Reason.LLM_AUTH),
        (Trouble(status=400, message="prompt is too long: 300000 tokens > 200000 maximum"), Reason.LLM_CONTEXT_LENGTH),
        (Trouble(status=400, message="bad", code="context_length_exceeded"), Reason.LLM_CONTEXT_LENGTH),
        (Trouble(status=400, message="unknown field `foo`", code="server_error"), Reason.LLM_BAD_RESPONSE),
        (Trouble(status=408, message=""), Reason.LLM_OVERLOADED),
        (Trouble(status=504, message="deadline"), Reason.LLM_OVERLOADED),
        (Trouble(message="Overloaded", code="overloaded_error"), Reason.LLM_OVERLOADED),
        (Trouble(message="Internal server error", code="api_error"), Reason.LLM_OVERLOADED),
        (Trouble(message="Rate limit reached", code="rate_limit_error"), Reason.LLM_RATE_LIMIT),
        (Trouble(message="ReadError"), Reason.NETWORK_ERROR),
    ],
)
def test_words_and_status_together_give_the_reason(trouble: Trouble, reason: Reason) -> None:
    assert failure_of(trouble, NOW_MS).reason is reason


@pytest.mark.parametrize(
    ("trouble", "answered"),
    [
        (Trouble(status=500, message="x"), True),
        (Trouble(status=502, message="x"), False),
        (Trouble(status=504, message="x"), False),
        (Trouble(status=None, message="x", sent=True), False),
        (Trouble(status=None, message="x", sent=False), True),
    ],
)
def test_whether_the_request_may_have_been_taken_up_is_known(trouble: Trouble, *, answered: bool) -> None:
    assert failure_of(trouble, NOW_MS).answered is answered


def test_a_quota_knows_when_it_ends_only_if_it_was_told() -> None:
    told = failure_of(Trouble(status=429, message="x", headers={"retry-after": "7200"}), NOW_MS)
    untold = failure_of(Trouble(status=429, message="x", code="insufficient_quota"), NOW_MS)
    assert (told.quota_until, told.retry_after_ms) == (NOW_MS + 7_200_000, None)
    assert (untold.quota_until, untold.retry_after_ms) == (None, None)


def test_an_error_is_one_line_of_a_bounded_length() -> None:
    failure = failure_of(Trouble(status=500, message="line one\n\tline two " + "x" * 90_000), NOW_MS)
    assert failure.error.startswith("HTTP 500: line one line two xxx")
    assert len(failure.error) == len("HTTP 500: ") + UNREDACTED_CHARS


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        (Trouble(status=400, message="Invalid schema for response_format 'answer'"), True),
        (Trouble(status=422, message="Unrecognized request argument: response_format"), True),
        (Trouble(status=400, message="output_config.format.schema: unsupported keyword"), True),
        (Trouble(status=400, message="the schema and the prompt exceed the context window"), False),
        (Trouble(status=400, message="temperature must be below 2"), False),
        (Trouble(status=500, message="response_format"), False),
        (Trouble(message="response_format"), False),
    ],
)
def test_only_a_refusal_of_the_schema_is_taken_for_one(trouble: Trouble, *, expected: bool) -> None:
    assert refuses_schema(trouble) is expected


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("length", Reason.LLM_BAD_RESPONSE),
        ("context", Reason.LLM_CONTEXT_LENGTH),
        ("filter", Reason.LLM_CONTENT_FILTER),
        ("tool", Reason.LLM_BAD_RESPONSE),
        ("cut", Reason.NETWORK_ERROR),
        ("other", Reason.LLM_BAD_RESPONSE),
    ],
)
def test_an_answer_that_did_not_end_by_itself_is_a_failure(finish: Finish, reason: Reason) -> None:
    found = failure_in(Reply(text="half of", finish=finish, said="x"), Ask(model="m", prompt="p"))
    assert found is not None
    assert (found.reason, found.answered) == (reason, finish != "cut")


def test_a_refusal_is_a_content_filter_even_if_the_answer_ended_well() -> None:
    found = failure_in(Reply(text="", finish="stop", refusal="I can't help with that."), Ask(model="m", prompt="p"))
    assert found is not None
    assert (found.reason, found.error) == (Reason.LLM_CONTENT_FILTER, "the model refused: I can't help with that.")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}}}, True),
        ({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}}, True),
        ({"type": "object"}, False),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, False),
        ({"type": "object", "properties": {"a": {"type": "string", "minLength": 3}}}, False),
        ({"type": "object", "properties": {"a": True}}, False),
        ({"type": "object", "properties": {"a": {}}}, False),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]}, False),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
            False,
        ),
        ({"type": "array", "items": {"type": "string"}}, False),
        ({}, False),
    ],
)
def test_a_schema_is_closed_only_where_that_keeps_its_sense(schema: dict[str, object], *, expected: bool) -> None:
    found = closed(schema)
    assert (found is not None) is expected
    if found is not None:
        assert found["additionalProperties"] is False


def test_a_schema_with_an_optional_property_does_not_require_all() -> None:
    optional = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}
    assert not requires_all({"type": "object", "properties": {"x": optional}, "required": ["x"]})
    assert requires_all(optional | {"required": ["b", "a"]})


def test_a_known_model_has_a_price_and_cached_tokens_cost_less() -> None:
    def price(cached_tokens: int) -> float:
        usage = Usage(input_tokens=1_000_000, output_tokens=0, cached_tokens=cached_tokens)
        reply = Reply(text="", finish="stop", model="gpt-4o", usage=usage)
        found = cost_usd("openai", None, "gpt-4o", reply)
        assert found is not None
        return found

    plain = price(0)
    assert plain == pytest.approx(2.5)
    assert price(900_000) < plain


@pytest.mark.parametrize(
    ("base_url", "model", "usage"),
    [
        (None, "no-such-model", Usage(input_tokens=1, output_tokens=1)),
        ("http://127.0.0.1:8080/v1", "gpt-4o", Usage(input_tokens=1, output_tokens=1)),
        (None, "gpt-4o", Usage(input_tokens=1)),
        (None, "gpt-4o", None),
    ],
)
def test_an_unknown_price_stays_unknown(base_url: str | None, model: str, usage: Usage | None) -> None:
    assert cost_usd("openai", base_url, model, Reply(text="", finish="stop", usage=usage)) is None
