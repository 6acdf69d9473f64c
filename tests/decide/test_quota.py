"""A used-up quota parks its engine, spends nothing, and holds nobody else up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.decide.runs import by_unit, dispatches

from interlock.decide.reopen import go_on, reopen
from interlock.decide.requests import answer as ask
from interlock.model import events as ev
from interlock.model.outcome import Outcome
from interlock.model.plan import Command, Gate, Plan, Retry
from interlock.model.run import Step, Unit
from interlock.model.states import Reason, StepState, UnitState
from interlock.testing.build import QUICK, failed, judged, ok, over, plan, prompt, step
from interlock.testing.simulate import BEGIN_MS, Simulation, simulate, snapshot

LATER = BEGIN_MS + 50_000
ITEMS = {"items": [1, 2, 3]}
YES = '{"complete": true}'


def quota(until: int | None = LATER, **fields: Any) -> Outcome:
    return msgspec.structs.replace(failed(Reason.LLM_QUOTA, "used up"), quota_until=until, **fields)


def state(simulation: Simulation) -> tuple[object, ...]:
    run = simulation.snap.run
    return run.state, run.reason, run.wait_until, run.detail


def of_engine(specs: Plan, engine: str, said: Outcome, times: int = 1) -> Any:
    """Answer the first calls of an engine with `said`, all else well."""
    left = [said] * times

    def answer(step_: Step, unit: Unit) -> Outcome:
        spec = specs.steps[step_.index]
        asks = "j" if unit.kind == "judge" else getattr(spec.target, "engine", None)
        if asks == engine and left:
            return left.pop()
        return ok(YES if unit.kind == "judge" else "text")

    return answer


def test_a_quota_parks_the_engine_and_spends_no_retry_no_loop_and_no_token() -> None:
    specs = plan(step("a", prompt(), retry=Retry(max=1, backoff=QUICK)))
    done = simulate(specs, of_engine(specs, "e", quota()))
    unit = done.snap.steps[0].work[0]
    assert state(done) == ("waiting", "llm_quota", LATER, "the quota of e is used up")
    assert (unit.state, unit.retries, unit.asks, done.snap.tokens) == (UnitState.PENDING, 0, 0, 0)
    assert done.snap.steps[0].detail == "the quota of engine 'e' is used up"
    done.at = LATER
    done.take_over()
    assert done.run().run.outcome == "ok"
    assert unit.attempt == 2


def test_a_run_before_the_time_still_waits_and_dispatches_nothing() -> None:
    specs = plan(step("a", prompt()))
    done = simulate(specs, of_engine(specs, "e", quota()))
    done.at = LATER - 1
    assert go_on(done.snap, done.now()) == []
    again = Simulation(done.snap, of_engine(specs, "e", quota()))
    again.add(*reopen(again.snap, again.now()))
    again.run()
    assert state(again)[0] == "waiting"
    assert dispatches(again.events) == []


def test_nothing_more_goes_to_a_parked_engine_while_other_engines_and_steps_go_on() -> None:
    specs = plan(
        step("m", prompt(), needs=[], map=over("params.items", concurrency=1)),
        step("other", prompt(engine="j"), needs=[]),
        step("command", needs=["other"]),
    )
    done = simulate(specs, of_engine(specs, "e", quota()), ITEMS)
    assert state(done)[0] == "waiting"
    assert [(s.id, s.state) for s in done.snap.steps] == [
        ("m", StepState.WAITING), ("other", StepState.COMPLETED), ("command", StepState.COMPLETED),
    ]  # fmt: skip
    assert dispatches(done.events).count((0, 0)) == 1
    assert (0, 1) not in dispatches(done.events)


def test_a_quota_of_unknown_end_blocks_the_run_and_the_next_run_tries_it() -> None:
    specs = plan(step("a", prompt()))
    done = simulate(specs, of_engine(specs, "e", quota(None)))
    text = "the quota of e is used up, and it is not known until when"
    assert state(done) == ("blocked", "llm_quota", None, text)
    done.take_over()
    assert done.run().run.outcome == "ok"


def test_resume_tries_an_engine_of_unknown_end_too() -> None:
    specs = plan(step("a", prompt()))
    done = simulate(specs, of_engine(specs, "e", quota(None)))
    done.add(*reopen(done.snap, done.now()))
    assert done.run().run.outcome == "ok"


def test_one_known_end_among_unknown_ones_is_waited_for_and_then_all_are_tried() -> None:
    specs = plan(step("a", prompt(), needs=[]), step("b", prompt(engine="j"), needs=[]))
    answers = by_unit({"a:solo": [quota(None)], "b:solo": [quota(LATER)]})
    done = simulate(specs, answers)
    assert state(done) == ("waiting", "llm_quota", LATER, "the quota of e, j is used up")
    done.at = LATER
    done.take_over()
    assert done.run().run.outcome == "ok"


@pytest.mark.parametrize(("first", "second", "until"), [
    (LATER, None, LATER), (None, LATER, LATER), (LATER, LATER + 9, LATER + 9), (LATER, LATER - 9, LATER),
    (None, None, None),
])  # fmt: skip
def test_what_is_known_of_a_quotas_end_stays_known(first: int | None, second: int | None, until: int | None) -> None:
    specs = plan(step("m", prompt(), map=over("params.items", concurrency=2)))
    left = [quota(first), quota(second)]
    done = simulate(specs, lambda _s, _u: left.pop(0), ITEMS)
    assert done.snap.parked == {"e": until}


def test_a_time_that_has_passed_is_not_tried_in_a_tight_loop() -> None:
    specs = plan(step("a", prompt()))
    done = simulate(specs, of_engine(specs, "e", quota(5)))
    assert state(done)[:2] == ("waiting", "llm_quota")
    assert done.snap.run.wait_until == done.at + 60_000


@pytest.mark.parametrize("until", [LATER, None])
def test_a_unit_in_backoff_waits_for_its_parked_engine_too(until: int | None) -> None:
    """Whether its retry is due before or after, the run does not stay active for it."""
    specs = plan(
        step(
            "m",
            prompt(),
            map=over("params.items", concurrency=2),
            retry=Retry(max=1, on=(Reason.LLM_RATE_LIMIT,), backoff=QUICK),
        )
    )
    left = [failed(Reason.LLM_RATE_LIMIT), quota(until)]
    done = simulate(specs, lambda _s, _u: left.pop(0) if left else ok("x"), ITEMS)
    assert state(done)[0] == ("waiting" if until else "blocked")
    done.at = LATER
    done.take_over()
    assert done.run().run.outcome == "ok"


def test_a_retry_that_alone_is_left_waits_for_its_parked_engine() -> None:
    specs = plan(
        step("a", prompt(), needs=[], retry=Retry(max=1, on=(Reason.TIMEOUT,), backoff=QUICK)),
        step("b", prompt(), needs=[]),
    )
    done = simulate(specs, by_unit({"a:solo": [failed(Reason.TIMEOUT)], "b:solo": [quota()]}))
    assert [s.state for s in done.snap.steps] == [StepState.WAITING, StepState.WAITING]
    done.at = LATER
    done.take_over()
    assert done.run().run.outcome == "ok"


def test_a_judges_quota_parks_like_any_other_and_costs_no_unit() -> None:
    specs = plan(step("a", prompt(), gate=judged(loops=2, asked=3)))
    done = simulate(specs, of_engine(specs, "j", quota()))
    assert state(done)[:3] == ("waiting", "llm_quota", LATER)
    done.at = LATER
    done.take_over()
    assert done.snap.steps[0].state is StepState.GATING
    assert done.run().run.outcome == "ok"
    units = done.snap.steps[0].units
    assert [(u.id, u.attempt) for u in units] == [
        ("a:solo", 1), ("a.gate:l1.j1", 2), ("a.gate:l1.j2", 1), ("a.gate:l1.j3", 1),
    ]  # fmt: skip


def test_failed_goes_before_blocked_and_blocked_before_waiting() -> None:
    approve = Gate(approval=True)
    specs = plan(step("q", prompt(), needs=[]), step("p", needs=[], gate=approve), step("f", needs=[]))
    answers = {"q:solo": [quota()], "f:solo": [failed()]}
    done = simulate(specs, by_unit(answers))
    assert [s.state for s in done.snap.steps] == ["failed", "blocked", "failed"]
    assert done.snap.run.state == "failed"
    done = simulate(plan(*specs.steps[:2]), by_unit({"q:solo": [quota()]}))
    assert [s.state for s in done.snap.steps] == ["waiting", "blocked"]
    assert state(done)[:2] == ("blocked", "approval_needed")


def test_a_step_that_waits_beside_a_blocked_one_goes_on_when_its_time_has_come() -> None:
    specs = plan(step("q", prompt(), needs=[]), step("p", needs=[], gate=Gate(approval=True)))
    done = simulate(specs, by_unit({"q:solo": [quota()]}))
    done.take_over()
    assert state(done)[0] == "blocked"
    done.at = LATER
    done.take_over()
    done.run()
    assert [s.state for s in done.snap.steps] == ["completed", "blocked"]
    assert state(done)[:2] == ("blocked", "approval_needed")


def test_a_step_that_waits_goes_on_by_itself_when_its_time_comes_while_others_run() -> None:
    specs = plan(step("q", prompt(), needs=[]), step("p", needs=[], gate=Gate(approval=True)), step("z", needs=["p"]))
    done = simulate(specs, by_unit({"q:solo": [quota()]}))
    done.add(*ask(done.snap, "approve", {"by": "me"}, done.now()).events)
    done.turn()
    assert done.snap.steps[0].state is StepState.WAITING
    done.at = LATER
    assert done.run().run.outcome == "ok"


def test_a_step_that_waits_ends_with_a_run_that_fails() -> None:
    specs = plan(step("q", prompt(), needs=[]), step("p", needs=[], gate=Gate(approval=True)))
    done = simulate(specs, by_unit({"q:solo": [quota()]}))
    done.add(*ask(done.snap, "reject", {"by": "me"}, done.now()).events)
    done.run()
    assert [(s.state, s.reason) for s in done.snap.steps] == [("failed", "stopped"), ("failed", "rejected")]
    assert done.snap.steps[0].counts[UnitState.NOT_RUN] == 1


def test_an_external_effect_that_may_have_begun_is_not_repeated_after_the_quota() -> None:
    specs = plan(step("a", prompt(), effects="external"))
    done = simulate(specs, of_engine(specs, "e", quota(answered=False)))
    assert state(done)[:2] == ("blocked", "effect_unknown")
    done = simulate(specs, of_engine(specs, "e", quota()))
    assert state(done)[:2] == ("waiting", "llm_quota")


def test_a_command_knows_no_quota() -> None:
    done = simulate(plan(step("a")), lambda _s, _u: quota())
    assert (done.snap.run.state, done.snap.parked) == ("failed", {})


def test_probes_go_on_beside_work_whose_retry_waits() -> None:
    """What is ready is of another kind than what is in backoff: it goes first, by itself."""
    specs = plan(
        step(
            "a",
            map=over("params.items", concurrency=3),
            effects="external",
            probe=Command(text="ask"),
            retry=Retry(max=2, backoff=QUICK),
        )
    )
    left = {0: [failed(Reason.TIMEOUT, answered=False), failed(), ok()]}

    def answer(_step: Step, unit: Unit) -> Outcome:
        if unit.kind == "probe":
            return ok(exit_code=1)
        return left[0].pop(0) if unit.index == 0 else [failed(Reason.TIMEOUT, answered=False), ok()][unit.attempt > 1]

    done = Simulation(snapshot(specs, ITEMS), answer)
    assert done.run().run.outcome == "ok"
    reserved = [event for event in done.events if isinstance(event, ev.AttemptReserved)]
    kinds = [done.snap.steps[0].units[event.unit].kind for event in reserved]
    assert kinds.count("probe") == 3
