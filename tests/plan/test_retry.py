"""Retries, their delays, and the bounds of numbers that a step may have."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from interlock.model.plan import Backoff, Retry
from interlock.model.states import NOT_RETRYABLE, Reason
from interlock.model.workflow import StepDecl
from interlock.plan.compile import compile_workflow
from interlock.plan.diagnose import shown


def only(front: str) -> StepDecl:
    workflow = compile_workflow(f"---\n{front}\n---\n".encode(), "flow.md").workflow
    assert workflow is not None
    return workflow.steps[0]


def test_retry_without_on_means_every_reason_that_can_be_retried() -> None:
    found = only("steps: [{ id: a, run: x, retry: { max: 2, backoff: { initial: 0, factor: 1 }, session: continue } }]")
    retry = found.settings.retry

    assert isinstance(retry, Retry)
    assert set(retry.on) == set(Reason) - NOT_RETRYABLE
    assert (retry.backoff, retry.session) == (Backoff(initial_ms=0, factor=1.0), "continue")


def test_an_initial_delay_above_the_usual_maximum_raises_it() -> None:
    retry = only("steps: [{ id: a, run: x, retry: { max: 1, backoff: { initial: 2m } } }]").settings.retry

    assert isinstance(retry, Retry)
    assert retry.backoff.max_ms == 120_000


@pytest.mark.parametrize(("longest", "initial_ms", "max_ms"), [("500ms", 500, 500), ("0", 0, 0), ("2s", 1_000, 2_000)])
def test_the_usual_initial_delay_gives_way_to_a_shorter_maximum(longest: str, initial_ms: int, max_ms: int) -> None:
    retry = only(f"steps: [{{ id: a, run: x, retry: {{ max: 1, backoff: {{ max: {longest} }} }} }}]").settings.retry
    assert retry is not UNSET
    assert (retry.backoff.initial_ms, retry.backoff.max_ms) == (initial_ms, max_ms)


@pytest.mark.parametrize(
    ("step", "message", "hint"),
    [
        (
            "retry: { max: 1, backoff: { initial: 2s, max: 1s } }",
            "'initial' is longer than 'max'",
            "shorten 'initial', or lengthen 'max'",
        ),
        (
            "retry: { max: 1, backoff: { initial: 5x, max: 1ms } }",
            "'initial': '5x' is not a duration",
            "write it as '500ms', '90s', '10m' or '2h'; 0 is no delay, a bare number is milliseconds",
        ),
        *[
            (
                f"retry: {{ max: 1, backoff: {{ factor: {number} }} }}",
                f"'factor' must be a number from 1 to 1000, not the number {shown(number)}",
                "",
            )
            for number in ("0.5", "1000.5", "1e30", "1" + 400 * "0")
        ],
        (
            "max_tokens: 9007199254740993",
            (
                "'max_tokens' must be a whole number of at least 1 and at most 9007199254740992, "
                "not the number 9007199254740993"
            ),
            "",
        ),
        (
            "temperature: 1e300",
            "'temperature' must be a number of at least 0 and at most 9007199254740992, not the number 1e300",
            "",
        ),
    ],
)
def test_a_number_or_delay_out_of_bounds_is_told_with_the_bound(step: str, message: str, hint: str) -> None:
    (found,) = compile_workflow(f"---\nsteps: [{{ id: a, {step} }}]\n---\n## a\nx\n".encode(), "flow.md").diagnostics
    assert (found.message, found.hint) == (message, hint)
