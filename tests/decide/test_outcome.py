from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.decide.fate import backoff_ms, may_retry
from interlock.decide.outcome import finish
from interlock.decide.output import Failure, Result, extract
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.outcome import Outcome
from interlock.model.plan import Backoff, Plan, Prompt, Retry
from interlock.model.plan import Step as PlanStep
from interlock.model.states import NOT_RETRYABLE, Reason
from interlock.testing.build import aborted, failed, ok, plan, solo, step
from interlock.testing.simulate import snapshot


def ended(spec: PlanStep, outcome: Outcome, kind: ev.UnitKind = "work", retries: int = 0) -> ev.AttemptFinished:
    specs: Plan = plan(spec)
    snap = snapshot(specs, events=[ev.StepStarted(at=1, step=0, round=1, loop=1, units=(solo(),))])
    unit = snap.steps[0].work[0]
    unit.kind, unit.retries, unit.attempt, unit.dispatch = kind, retries, 3, "d"
    return finish(snap, snap.steps[0], unit, outcome, 1_000)


def fate(event: ev.AttemptFinished) -> tuple[str, str, str | None]:
    return event.state, event.unit_state, event.reason


EXTERNAL = step("a", effects="external", retries=5)
PLAIN = step("a", retries=1)


@pytest.mark.parametrize(
    ("spec", "outcome", "expected"),
    [
        (PLAIN, ok("x"), ("completed", "completed", None)),
        (PLAIN, failed(), ("failed", "waiting", "non_zero_exit")),
        (PLAIN, failed(Reason.LOST), ("failed", "failed", "lost")),
        (PLAIN, failed(Reason.TIMEOUT, answered=False), ("failed", "waiting", "timeout")),
        (PLAIN, aborted(), ("aborted", "pending", "aborted")),
        (PLAIN, Outcome(dispatch="", status="failed"), ("failed", "waiting", "dispatch_error")),
        (EXTERNAL, ok("x"), ("completed", "completed", None)),
        (EXTERNAL, failed(), ("failed", "waiting", "non_zero_exit")),
        (EXTERNAL, failed(Reason.TIMEOUT, answered=False), ("failed", "unknown", "timeout")),
        (EXTERNAL, failed(Reason.SPAWN_FAILED), ("failed", "waiting", "spawn_failed")),
        (EXTERNAL, aborted(), ("aborted", "unknown", "aborted")),
        (EXTERNAL, aborted(answered=True), ("aborted", "pending", "aborted")),
    ],
)
def test_the_end_of_an_attempt_decides_over_its_unit(
    spec: PlanStep, outcome: Outcome, expected: tuple[str, str, str | None]
) -> None:
    assert fate(ended(spec, outcome)) == expected


@pytest.mark.parametrize(
    ("kind", "outcome", "expected", "verdict"),
    [
        ("gate", ok(), ("completed", "completed", None), "pass"),
        ("gate", ok(exit_code=1), ("completed", "completed", None), "reject"),
        ("gate", ok(exit_code=2), ("completed", "completed", None), "reject"),
        ("gate", ok(exit_code=126), ("failed", "failed", "spawn_failed"), None),
        ("gate", ok(exit_code=127), ("failed", "failed", "spawn_failed"), None),
        ("gate", ok(exit_code=-9), ("failed", "failed", "spawn_failed"), None),
        ("gate", failed(Reason.TIMEOUT), ("failed", "failed", "timeout"), None),
        ("gate", Outcome(dispatch="", status="failed"), ("failed", "failed", "dispatch_error"), None),
        ("gate", aborted(), ("aborted", "pending", "aborted"), None),
        ("probe", ok(), ("completed", "completed", None), "pass"),
        ("probe", ok(exit_code=1), ("completed", "completed", None), "reject"),
        ("probe", ok(exit_code=2), ("failed", "failed", "non_zero_exit"), None),
        ("probe", ok(exit_code=255), ("failed", "failed", "non_zero_exit"), None),
        ("probe", ok(exit_code=126), ("failed", "failed", "spawn_failed"), None),
        ("probe", ok(exit_code=127), ("failed", "failed", "spawn_failed"), None),
        ("probe", failed(Reason.KILLED, answered=False), ("failed", "failed", "killed"), None),
    ],
)
def test_the_end_of_a_question_is_an_answer_or_none(
    kind: ev.UnitKind, outcome: Outcome, expected: tuple[str, str, str | None], verdict: str | None
) -> None:
    event = ended(EXTERNAL, outcome, kind)
    assert (fate(event), event.verdict) == (expected, verdict)


@pytest.mark.parametrize(
    ("kind", "outcome", "error"),
    [
        ("gate", ok("sh: lint: not found\n", exit_code=127), "exit code 127: sh: lint: not found"),
        ("gate", ok(exit_code=126), "exit code 126"),
        ("probe", ok("sh: ask: not found\n", exit_code=127), "exit code 127: sh: ask: not found"),
        ("probe", ok("db down\n", exit_code=2), "exit code 2, where 0 says done and 1 not done: db down"),
        ("probe", ok(" \n", exit_code=3), "exit code 3, where 0 says done and 1 not done"),
    ],
)
def test_what_gave_no_answer_is_told_with_its_exit_and_what_it_said(
    kind: ev.UnitKind, outcome: Outcome, error: str
) -> None:
    assert ended(EXTERNAL, outcome, kind).error == error


def test_a_check_without_exit_code_gave_no_verdict() -> None:
    event = ended(PLAIN, Outcome(dispatch="", status="ok"), "gate")
    assert (fate(event), event.error) == (("failed", "failed", "spawn_failed"), "no exit code")


def test_retries_are_counted_and_wait_as_their_number_says() -> None:
    event = ended(step("a", retries=3), failed(), retries=1)
    assert (event.retries, event.not_before) == (2, 1_020)
    spent = ended(step("a", retries=3), failed(), retries=3)
    assert (spent.retries, spent.not_before, spent.unit_state) == (3, None, "failed")


def test_the_other_sides_wish_to_wait_is_honoured() -> None:
    assert ended(PLAIN, failed(after_ms=60_000)).not_before == 61_000


def test_an_error_is_clipped_at_four_thousand_characters() -> None:
    assert len(ended(PLAIN, failed(error="x" * 9_000)).error) == 4_096


def test_an_output_that_misses_the_schema_is_retried_only_where_it_may_be() -> None:
    spec = step("a", retries=1, schema={"type": "integer"})
    assert fate(ended(spec, ok("oops"))) == ("failed", "waiting", "parse_error")
    assert fate(ended(spec, ok('"text"'))) == ("failed", "failed", "validation_error")


@given(st.integers(0, 10**6), st.floats(1, 1e6), st.integers(0, 10**7), st.integers(1, 500))
def test_backoff_grows_to_its_maximum_and_never_past_it(initial: int, factor: float, top: int, number: int) -> None:
    retry = Retry(backoff=Backoff(initial_ms=initial, factor=factor, max_ms=top))
    now, later = backoff_ms(retry, number), backoff_ms(retry, number + 1)
    assert 0 <= now <= later <= top or initial == 0
    assert backoff_ms(retry, 1) == min(initial, top)


@given(st.sampled_from(Reason), st.sets(st.sampled_from(Reason)), st.integers(0, 3), st.integers(0, 3))
def test_only_listed_reasons_are_retried_and_some_never(reason: Reason, on: set[Reason], top: int, spent: int) -> None:
    expected = spent < top and reason not in NOT_RETRYABLE and (not on or reason in on)
    assert may_retry(Retry(max=top, on=tuple(on)), reason, spent) is expected


def text(output: bytes) -> Result | Failure:
    return extract(output, is_json=False, schema_json=None, max_bytes=100)


@pytest.mark.parametrize(
    ("output", "value"),
    [(b"a\n", "a"), (b"a\r\n", "a"), (b"a\n\n", "a\n"), (b" a ", " a "), (b"\xff", "\ufffd"), (b"null", "null")],
)
def test_without_a_schema_stdout_is_text_less_its_final_newline(output: bytes, value: str) -> None:
    assert text(output) == Result(canon.dumps(value))


@pytest.mark.parametrize("output", [b"", b"\n", b"\r\n"])
def test_empty_text_is_absent(output: bytes) -> None:
    assert text(output) == Result(None)


def test_a_result_over_its_limit_is_too_large() -> None:
    assert text(b"x" * 99) == Failure(
        Reason.OUTPUT_TOO_LARGE, "the result has 101 bytes; the limit is 100 (max_result_bytes of [limits])"
    )


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (b"", "stdout is empty; the step's schema asks for one JSON value"),
        (b" \n", "stdout is empty; the step's schema asks for one JSON value"),
        (b"{} {}", "stdout is not exactly one JSON value: Extra data at line 1 column 4"),
        (b'{"a":1,"a":2}', 'stdout is not exactly one JSON value: duplicate key "a"'),
    ],
)
def test_with_a_schema_stdout_is_exactly_one_json_value(output: bytes, error: str) -> None:
    found = extract(output, is_json=False, schema_json="{}", max_bytes=100)
    assert found == Failure(Reason.PARSE_ERROR, error)


def test_a_function_that_returns_nothing_is_absent_unless_a_schema_wants_null() -> None:
    assert extract(b"null", is_json=True, schema_json=None, max_bytes=9) == Result(None)
    assert extract(b"null", is_json=True, schema_json="{}", max_bytes=9) == Result(b"null")
    assert extract(b"[ 1 ]", is_json=True, schema_json=None, max_bytes=9) == Result(b"[1]")
    missed = extract(b"1", is_json=True, schema_json='{"type":"string"}', max_bytes=9)
    assert missed == Failure(
        Reason.VALIDATION_ERROR, 'the function\'s return value misses the schema: value: 1 is not of type "string"'
    )


MISSED = Outcome(dispatch="", status="failed", reason=Reason.PARSE_ERROR, missed=True)


@pytest.mark.parametrize("kind", ["work", "judge"])
def test_an_answer_said_to_have_missed_is_asked_for_once_more_and_no_second_time(kind: ev.UnitKind) -> None:
    prompt = step("a", Prompt(text="Do it.", engine="e"))
    snap = snapshot(plan(prompt), events=[ev.StepStarted(at=1, step=0, round=1, loop=1, units=(solo(),))])
    unit = snap.steps[0].work[0]
    unit.kind, unit.attempt, unit.dispatch = kind, 1, "d"
    first = finish(snap, snap.steps[0], unit, MISSED, 1_000)
    assert (*fate(first), first.asks) == ("failed", "pending", "parse_error", 1)
    unit.asks = 1
    assert fate(finish(snap, snap.steps[0], unit, MISSED, 1_000)) == ("failed", "failed", "parse_error")


def test_a_command_is_never_run_again_for_an_answer_that_missed() -> None:
    assert fate(ended(step("a"), MISSED)) == ("failed", "failed", "parse_error")
