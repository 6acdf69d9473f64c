"""Prompts, judges and people under the real loop, on a real journal, with engines that a test plays by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.driver.desk import Desk, Play, real_plan

from interlock.decide.answers import JUDGE_SCHEMA
from interlock.dispatch.base import Report, Request
from interlock.model import canon
from interlock.model.events import Answered, Usage
from interlock.model.outcome import Outcome
from interlock.model.plan import Engine, Gate, Judge, Retry
from interlock.model.plan import Step as PlanStep
from interlock.model.states import Reason, StepState
from interlock.testing.build import QUICK, failed, judged, ok, over, prompt, step

WHOLE = {"type": "integer"}
WARM = (
    "Your last answer could not be used: the reply could not be used: it holds no JSON value\n"
    "Answer again with exactly one JSON value that fits the schema, and nothing else."
)


Make = Callable[..., Desk]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Make]:
    made: list[Desk] = []

    def make(*steps: PlanStep, params: dict[str, Any] | None = None, **changes: Any) -> Desk:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Desk(folder, msgspec.structs.replace(real_plan(folder, *steps), **changes), params))
        return made[-1]

    yield make
    for one in made:
        one.close()


def told(text: str, session: str | None = None, **fields: Any) -> Outcome:
    usage = Usage(input_tokens=3, output_tokens=4, cached_tokens=0, reasoning_tokens=0, cost_usd=0.5)
    return msgspec.structs.replace(ok(text), usage=usage, answered_by=Answered(session=session), **fields)


def play(*outcomes: Outcome) -> Play:
    """End what runs, one by one, in this order."""

    def script(desk: Desk) -> Iterator[list[Report]]:
        for outcome in outcomes:
            desk.clock.advance(2_000)
            yield desk.hand.end_all(outcome) if desk.hand.running else []

    return script


def asked(desk: Desk) -> list[Request]:
    return desk.hand.started


@pytest.mark.parametrize("session", [None, "s1"])
def test_the_one_re_ask_goes_on_in_the_session_or_stands_by_itself(desk: Make, session: str | None) -> None:
    work = desk(step("a", prompt("Do it."), schema=WHOLE))
    work.drive(play(told("x", session), told("7", session)))
    first, again = asked(work)
    assert (first.prompt, first.cold_prompt, first.session) == ("Do it.", None, None)
    cold = f"Do it.\n\n{WARM}"
    assert (again.prompt, again.cold_prompt, again.session) == (
        (cold, None, None) if session is None else (WARM, cold, "s1")
    )
    assert again.session_usage == (None if session is None else told("").usage)
    assert (work.snap.run.outcome, work.restore().steps[0].work[0].asks) == ("ok", 1)


def test_a_retry_after_the_re_ask_sends_the_task_and_no_second_correction(desk: Make) -> None:
    retry = Retry(max=1, on=(Reason.PARSE_ERROR,), backoff=QUICK)
    work = desk(step("a", prompt("Do it."), schema=WHOLE, retry=retry))
    work.drive(play(told("x"), told("y"), told("z"), told("never")))
    assert [request.prompt for request in asked(work)] == ["Do it.", f"Do it.\n\n{WARM}", "Do it."]
    assert (work.snap.run.state, work.snap.run.reason) == ("failed", "parse_error")


def test_a_crash_in_the_re_ask_grants_no_second(desk: Make) -> None:
    for session in (None, "s1"):
        work = desk(step("a", prompt("Do it."), schema=WHOLE))
        with pytest.raises(AssertionError, match="the script is over"):
            work.drive(play(told("x", session)))
        work.lease = work.take_over()
        work.drive(play(told("z"), told("never")))
        assert work.restore().steps[0].work[0].asks == 1
        assert (work.snap.run.state, work.snap.run.reason) == ("failed", "parse_error")
        assert [number for _, number, _ in work.attempts()] == [1, 2, 3]


def test_a_loop_goes_on_in_the_session_where_the_step_says_so(desk: Make) -> None:
    warm, cold = Retry(session="continue", backoff=QUICK), Retry(session="new", backoff=QUICK)
    for retry, session in ((warm, "s1"), (cold, None)):
        work = desk(step("a", prompt("Do it."), gate=judged(loops=2), retry=retry))
        reject = told('{"complete": false, "missing": ["m"], "feedback": "thin"}')
        work.drive(play(told("x", "s1"), reject, told("y", "s2"), told('{"complete": true}')))
        assert work.snap.run.outcome == "ok"
        second = asked(work)[2]
        assert (second.unit_id, second.session, second.cold_prompt) == ("a:solo~l2", session, None)
        assert (second.prompt or "").endswith('```json\n{"feedback":"thin","missing":["m"]}\n```')


def test_a_judge_gets_the_rubric_the_summary_and_its_schema_and_no_feedback(desk: Make) -> None:
    judge = Judge(rubric="Is it\r so?", engine="j", model="big", clip_chars=5)
    engines = (
        Engine(name="e", kind="agent", driver="claude", model="own", env=("E",)),
        Engine(name="j", kind="llm", driver="openai", env=("J",)),
    )
    work = desk(
        step("m", prompt("Do it."), map=over("params.items"), gate=Gate(judge=judge), env=("S",)),
        params={"items": ["u"]},
        engines=engines,
    )
    work.drive(play(told("long text"), told('{"complete": true}')))
    unit, judging = asked(work)
    assert unit.job.call is not None
    assert judging.job.call is not None
    assert (unit.job.call.model, unit.job.env, unit.job.call.driver) == ("own", ("E", "S"), "claude")
    call = judging.job.call
    assert (call.engine, call.model, call.schema_json, judging.job.env) == ("j", "big", JUDGE_SCHEMA, ("J",))
    text = judging.prompt or ""
    assert text.startswith("Is it\r so?\n\nJudge whether")
    assert "\n\nUnits: 1 in all, 1 completed.\n\n" in text
    assert 'artifact as canonical JSON, clipped to its first 5 of 13 characters:\n```json\n["lon\n```' in text


def test_a_judge_of_an_item_sees_that_item_alone(desk: Make) -> None:
    work = desk(
        step("m", prompt("Do it."), map=over("params.items", concurrency=1), gate=judged(each=True)),
        params={"items": ["u", "v"]},
    )
    work.drive(play(told("alpha"), told("omega"), told('{"complete": true}'), told('{"complete": true}')))
    texts = [request.prompt or "" for request in asked(work)[2:]]
    for text, item, result, other in zip(texts, ("u", "v"), ("alpha", "omega"), ("omega", "alpha"), strict=True):
        assert "Units: one item of 2, completed." in text
        assert f'item:\n```json\n"{item}"\n```' in text
        assert f'result of this item as canonical JSON:\n```json\n"{result}"\n```' in text
        assert other not in text


def test_a_quota_is_journaled_and_waited_for_and_the_next_driver_knows_it(desk: Make) -> None:
    work = desk(step("a", prompt("Do it.")))
    until = work.clock.wall_ms() + 100_000
    work.drive(play(msgspec.structs.replace(failed(Reason.LLM_QUOTA), quota_until=until)))
    run = work.restore().run
    assert (run.state, run.reason, run.wait_until) == ("waiting", "llm_quota", until)
    assert work.restore().parked == {"e": until}
    work.drive(play())
    assert asked(work) == []
    work.clock.advance(100_000)
    work.drive(play(told("x")))
    assert work.snap.run.outcome == "ok"
    assert work.history().count("engine_parked") == 1


def test_a_verdict_is_taken_by_a_live_driver_while_other_work_goes_on(desk: Make) -> None:
    work = desk(
        step("a", prompt("Do it."), needs=[], gate=Gate(approval=True)),
        step("slow", needs=[]),
        step("after", needs=["a"]),
    )
    requests: list[int] = []

    def script(desk: Desk) -> Iterator[list[Report]]:
        yield [desk.hand.end("a:solo", told("x"))]
        assert desk.restore().steps[0].state is StepState.BLOCKED
        requests.append(desk.ask("approve", {"by": "me", "target": "a"}))
        desk.clock.advance(1_000)
        yield []
        desk.clock.advance(1_000)
        assert desk.hand.names() == ["slow:solo", "after:solo"]
        yield desk.hand.end_all(ok("x"))

    work.drive(script)
    assert [work.outcome(request) for request in requests] == ["applied"]
    assert work.snap.run.outcome == "ok"


@pytest.mark.parametrize("kind", ["approve", "reject", "loops"])
def test_what_a_run_that_failed_cannot_take_is_answered_and_breaks_nothing(desk: Make, kind: Any) -> None:
    work = desk(step("a", prompt("Do it."), needs=[], gate=Gate(approval=True)), step("b", needs=[]))

    def script(desk: Desk) -> Iterator[list[Report]]:
        yield [desk.hand.end("a:solo", told("x"))]
        yield [desk.hand.end("b:solo", failed())]

    work.drive(script)
    request = work.ask(kind, {"by": "me", "loops": 1})
    loop, _ = work.sit(play())
    loop.drive([], settle_only=True)
    assert work.outcome(request) == (
        "no rejected step here can loop"
        if kind == "loops"
        else "the run failed; reopen it first: interlock resume run-1"
    )
    assert work.restore().run.state == "failed"


def test_an_artifact_that_is_absent_is_judged_as_null(desk: Make) -> None:
    work = desk(step("a", prompt("Do it."), gate=judged()))
    work.drive(play(told(""), told('{"complete": true}')))
    assert "artifact as canonical JSON:\n```json\nnull\n```" in (asked(work)[1].prompt or "")
    assert work.restore().steps[0].artifact_hash == canon.sha256(b"null")
