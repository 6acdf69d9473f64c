from __future__ import annotations

import datetime as dt

import pytest
from tests.dispatch.agents.replies import NOW_MS

from interlock.dispatch.agents.disguised import disguised
from interlock.dispatch.agents.faults import Fault, fault_of
from interlock.dispatch.agents.quota import delay_ms, until_ms
from interlock.model.states import Reason


def epoch_ms(text: str) -> int:
    return round(dt.datetime.fromisoformat(text).timestamp() * 1_000)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("API Error: 401 no such key", Reason.LLM_AUTH),
        ("unexpected status 403 Forbidden: no", Reason.LLM_AUTH),
        ("API Error: Request rejected (429) too fast, rate limit", Reason.LLM_RATE_LIMIT),
        ("exceeded retry limit, last status: 429 Too Many Requests", Reason.LLM_RATE_LIMIT),
        ("HTTP 500 oops", Reason.LLM_OVERLOADED),
        ("Error: Failed to get response; retried 5 times. Last error: 500 oops", Reason.LLM_OVERLOADED),
        ("Last error: Failed native model HTTP request: unexpected EOF during chunk size line", Reason.NETWORK_ERROR),
        ("unexpected status 529 <unknown status code>: x", Reason.LLM_OVERLOADED),
        ("We're currently experiencing high demand", Reason.LLM_OVERLOADED),
        ("Error: Unexpected error\n\ndatabase is locked", Reason.LLM_OVERLOADED),
        ("API Error: 400 prompt is too long: 250000 tokens > 200000 maximum", Reason.LLM_CONTEXT_LENGTH),
        ("API Error: 413 request_too_large", Reason.LLM_CONTEXT_LENGTH),
        ("API Error: 400 blocked by content filtering policy, content_policy", Reason.LLM_CONTENT_FILTER),
        ("API Error: 400 unknown parameter", Reason.LLM_BAD_RESPONSE),
        ("API Error: 404 no such model", Reason.LLM_BAD_RESPONSE),
        ("connect ECONNREFUSED 127.0.0.1:1", Reason.NETWORK_ERROR),
        ("API Error: Unable to connect to API (ConnectionRefused)", Reason.NETWORK_ERROR),
        ("stream disconnected before completion: idle timeout", Reason.NETWORK_ERROR),
        ("Not logged in · Please run /login", Reason.LLM_AUTH),
        ("Credit balance is too low", Reason.LLM_QUOTA),
        ("429 You exceeded your current quota, please check your plan and billing details", Reason.LLM_QUOTA),
        ('{"error":{"code":"insufficient_quota"}}', Reason.LLM_QUOTA),
    ],
)
def test_an_error_text_has_a_reason(text: str, reason: Reason) -> None:
    fault = fault_of(text, NOW_MS)
    assert fault is not None
    assert fault.reason is reason


def test_a_text_that_says_nothing_known_has_no_reason() -> None:
    assert fault_of("it went wrong", NOW_MS) is None


def test_a_known_status_stands_over_the_words() -> None:
    assert fault_of("connection error", NOW_MS, 401) == Fault(Reason.LLM_AUTH)


@pytest.mark.parametrize(
    ("text", "wait_ms"),
    [
        ("Rate limit reached. Please try again in 1.5s.", 1_500),
        ("rate limit: retry after 20 seconds", 20_000),
        ("rate limit; try again in 250ms", 250),
        ('rate limit "retryDelay": "7s"', 7_000),
        ("rate limit: try again in 1m30s", 90_000),
        ("rate limit reached for m in organization o", None),
        ("You exceeded your current quota, see your plan and billing. Please retry in 12.5s.", 12_500),
    ],
)
def test_a_rate_limit_keeps_the_wait_that_it_names(text: str, wait_ms: int | None) -> None:
    assert fault_of(text, NOW_MS, 429) == Fault(Reason.LLM_RATE_LIMIT, retry_after_ms=wait_ms)


def test_a_rate_limit_that_lasts_long_is_a_quota() -> None:
    fault = fault_of("rate limit: try again in 2 hours", NOW_MS, 429)
    assert fault == Fault(Reason.LLM_QUOTA, quota_until=NOW_MS + 7_200_000)


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("Claude AI usage limit reached|1796010000", "2026-11-30T03:40:00+00:00"),
        ("5-hour limit reached ∙ resets 3pm (UTC)", "2026-11-30T15:00:00+00:00"),
        ("You've hit your limit · resets 2am (UTC)", "2026-12-01T02:00:00+00:00"),
        ("You've hit your limit · resets 9:30am (Europe/Berlin)", "2026-11-30T09:30:00+01:00"),
        ("weekly limit reached, resets Dec 3 at 12am (UTC)", "2026-12-03T00:00:00+00:00"),
        ("weekly limit reached, resets Jan 2, 3pm (UTC)", "2027-01-02T15:00:00+00:00"),
        ("usage limit. Try again in 2 days 3 hours 5 minutes.", "2026-12-02T05:45:00+00:00"),
        ("quota exceeded until 2026-12-01T00:00:00Z", "2026-12-01T00:00:00+00:00"),
        ("Your quota will reset after 1h2m3s.", "2026-11-30T03:42:03+00:00"),
    ],
)
def test_a_quota_has_the_reset_that_it_names(text: str, until: str) -> None:
    assert fault_of(text, NOW_MS) == Fault(Reason.LLM_QUOTA, quota_until=epoch_ms(until))


@pytest.mark.parametrize("text", ["usage limit reached", "resets 3pm (No/Where)", "resets Feb 31 at 3pm (UTC)", ""])
def test_a_reset_that_cannot_be_read_is_unknown(text: str) -> None:
    assert until_ms(text, NOW_MS) is None


def test_a_text_without_a_wait_has_none() -> None:
    assert delay_ms("in a while") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("API Error: 529 overloaded", Reason.LLM_OVERLOADED),
        ("Error: 400 fake error 400", Reason.LLM_BAD_RESPONSE),
        (
            '{"error": {"message": "fake error 401", "code": "invalid_api_key", "type": "x"}, "status": 401}',
            Reason.LLM_AUTH,
        ),
        ('{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', Reason.LLM_OVERLOADED),
        ("litellm.AuthenticationError: no key", Reason.LLM_AUTH),
        ("Claude AI usage limit reached|1796010000", Reason.LLM_QUOTA),
        ("[API Error: terminated]", Reason.NETWORK_ERROR),
        ("Execution error", Reason.PARSE_ERROR),
        ("429 Too Many Requests", Reason.LLM_RATE_LIMIT),
    ],
)
def test_an_error_passed_off_as_an_answer_is_recognised(text: str, reason: Reason) -> None:
    fault = disguised(text, NOW_MS)
    assert fault is not None
    assert fault.reason is reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The API Error: 529 in the log comes from the proxy.",
        "Errors are handled in `api.py`; 500 is retried.",
        '{"error": "none", "verdict": "pass"}',
        '{"error": {"message": "x", "type": "y"}, "verdict": "fail"}',
        '{"error": {"message": "of the reviewed code"}}',
        '{"error": null}',
        "500 files were changed",
        "Invalid input is refused by the parser.",
        "API Error: " + "a long analysis " * 200,
    ],
)
def test_an_answer_about_errors_is_an_answer(text: str) -> None:
    assert disguised(text, NOW_MS) is None
