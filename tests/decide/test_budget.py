"""Tokens and money: what is held back, what is charged, and where a ceiling stops a run."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest
from tests.decide.runs import dispatches

from interlock.decide.budget import reservation
from interlock.decide.next import next_actions
from interlock.decide.reopen import close_lost, reopen
from interlock.decide.requests import answer as ask
from interlock.model import events as ev
from interlock.model.events import Usage
from interlock.model.outcome import Outcome
from interlock.model.plan import Budget, Engine, Plan
from interlock.model.run import Step, Unit
from interlock.model.states import Reason
from interlock.testing.build import failed, judged, ok, over, plan, prompt, step
from interlock.testing.simulate import Simulation, simulate, snapshot

ITEMS = {"items": list(range(12))}
TEN = Usage(input_tokens=6, output_tokens=4, cost_usd=0.5)


def used(outcome: Outcome, usage: Usage | None) -> Outcome:
    return msgspec.structs.replace(outcome, usage=usage)


def run(specs: Plan, usage: Usage | None = TEN) -> Simulation:
    def answer(_step: Step, unit: Unit) -> Outcome:
        return used(ok('{"complete": true}' if unit.kind == "judge" else "text"), usage)

    return simulate(specs, answer, ITEMS)


def reserved(simulation: Simulation) -> list[int]:
    return [event.reserve_tokens for event in simulation.events if isinstance(event, ev.AttemptReserved)]


def most(simulation: Simulation) -> int:
    """Return the most tokens that were ever held back at a time."""
    snap = snapshot(simulation.snap.plan, ITEMS)
    top = 0
    for event in simulation.events:
        snap.apply(event)
        top = max(top, snap.reserved_tokens)
    return top


def test_a_dispatch_holds_back_its_output_cap_else_what_its_engine_used_else_what_is_configured() -> None:
    capped = msgspec.structs.replace(prompt(), max_tokens=77)
    assert set(reserved(run(plan(step("a", capped))))) == {77}
    found = run(plan(step("m", prompt(), map=over("params.items", concurrency=1))))
    assert reserved(found) == [20_000] * 5 + [10] * 7
    agent = Engine(name="e", kind="agent", driver="claude", reserve_tokens=500)
    capped_agent = msgspec.structs.replace(plan(step("a", capped)), engines=(agent,))
    assert reserved(run(capped_agent)) == [500], "it makes many calls in one session, each with that cap"
    assert reserved(run(plan(step("a")))) == [0]
    assert found.snap.reserved_tokens == 0


def test_what_an_engine_was_seen_to_use_is_the_95th_percentile_of_its_latest_hundred() -> None:
    specs = plan(step("a", prompt()))
    snap = snapshot(specs)
    snap.usage_seen["e"] = [*range(1, 101)]
    assert reservation(snap, specs.steps[0], "work") == 95
    snap.usage_seen["e"] = [1, 2, 3, 4, 500]
    assert reservation(snap, specs.steps[0], "work") == 500
    unknown = msgspec.structs.replace(specs, engines=())
    assert reservation(snapshot(unknown), unknown.steps[0], "work") == 0


def test_only_the_latest_hundred_answers_are_remembered() -> None:
    specs = plan(step("m", prompt(), map=over("params.items")))
    done = simulate(specs, lambda _s, _u: used(ok("x"), TEN), {"items": list(range(150))})
    assert done.snap.usage_seen == {"e": [10] * 100}


def test_unknown_usage_is_charged_at_what_was_held_back_and_never_believed() -> None:
    done = run(plan(step("a", prompt())), None)
    (end,) = [event for event in done.events if isinstance(event, ev.AttemptFinished)]
    assert end.usage == Usage(output_tokens=20_000, estimated=True)
    assert (done.snap.tokens, done.snap.usage_seen) == (20_000, {})
    done = run(plan(step("a", prompt())), Usage(cost_usd=0.25))
    assert (done.snap.tokens, done.snap.cost_usd) == (20_000, 0.25)
    assert (done.snap.usage_seen, done.snap.cost_seen) == ({}, {"e": [0.25]})
    unreserved = msgspec.structs.replace(
        plan(step("a", prompt())), engines=(Engine(name="e", kind="agent", driver="x", reserve_tokens=0),)
    )
    done = run(unreserved, Usage(cost_usd=0.25))
    assert (done.snap.tokens, done.snap.usage_seen, done.snap.cost_seen) == (0, {}, {"e": [0.25]})


@pytest.mark.parametrize(("reason", "llm", "agent"), [
    (Reason.LLM_RATE_LIMIT, 0, 20_000), (Reason.LLM_OVERLOADED, 0, 20_000), (Reason.LLM_CONTEXT_LENGTH, 0, 20_000),
    (Reason.LLM_AUTH, 0, 0), (Reason.SPAWN_FAILED, 0, 0), (Reason.ENV_UNRESOLVED, 0, 0),
    (Reason.PROMPT_TOO_LARGE, 0, 0), (Reason.ISOLATION_FAILED, 0, 0), (Reason.LLM_QUOTA, 0, 0),
    (Reason.TIMEOUT, 20_000, 20_000), (Reason.NETWORK_ERROR, 20_000, 20_000),
    (Reason.LLM_BAD_RESPONSE, 20_000, 20_000),
])  # fmt: skip
def test_a_failure_is_charged_where_the_engine_may_have_worked(reason: Reason, llm: int, agent: int) -> None:
    charged: dict[Literal["llm", "agent"], int] = {"llm": llm, "agent": agent}
    for kind, tokens in charged.items():
        engine = Engine(name="e", kind=kind, driver="x")
        specs = msgspec.structs.replace(plan(step("a", prompt())), engines=(engine,))
        assert simulate(specs, lambda _s, _u: failed(reason)).snap.tokens == tokens


def test_a_refusal_that_names_its_usage_is_charged_that() -> None:
    done = simulate(plan(step("a", prompt())), lambda _s, _u: used(failed(Reason.LLM_RATE_LIMIT), TEN))
    assert done.snap.tokens == 10


def test_an_attempt_that_was_lost_is_charged_what_it_had_held_back() -> None:
    simulation = Simulation(snapshot(plan(step("a", prompt()))), lambda _s, _u: ok("x"))
    while not simulation.snap.running:
        for action in next_actions(simulation.snap, simulation.now()):
            simulation.act(action)
    assert simulation.snap.reserved_tokens == 20_000
    simulation.add(*close_lost(simulation.snap, simulation.now()))
    assert (simulation.snap.tokens, simulation.snap.reserved_tokens) == (20_000, 0)


def test_no_more_is_ever_held_back_than_the_ceiling_leaves() -> None:
    wide = over("params.items", concurrency=8)
    found = run(plan(step("m", prompt(), map=wide), budget=Budget(max_tokens=50_000)))
    assert found.snap.run.outcome == "ok"
    assert most(found) == 40_000


def test_steps_side_by_side_share_what_the_ceiling_leaves() -> None:
    wide = over("params.items", concurrency=8)
    specs = plan(
        step("m", prompt(), needs=[], map=wide), step("n", prompt(), needs=[], map=wide),
        budget=Budget(max_tokens=50_000),
    )  # fmt: skip
    found = run(specs)
    assert found.snap.run.outcome == "ok"
    assert most(found) == 40_000


def test_a_ceiling_that_leaves_too_little_stops_the_run_and_names_itself() -> None:
    found = run(plan(step("a", prompt()), budget=Budget(max_tokens=19_999)))
    assert (found.snap.run.state, found.snap.run.reason) == ("failed", "budget_exceeded")
    text = "the budget's max_tokens of 19999 leaves too little (0 used) for 20,000 more"
    assert found.snap.steps[0].detail == text
    assert dispatches(found.events) == []


@pytest.mark.parametrize("on_error", ["fail", "continue"])
@pytest.mark.parametrize(("budget", "text"), [
    (Budget(max_tokens=30), "the budget's max_tokens of 30 is used up (30)"),
    (Budget(max_cost_usd=1.2), "the budget's max_cost_usd of 1.2 is used up (1.5)"),
    (Budget(max_units=3), "the budget's max_units of 3 is used up (3)"),
])  # fmt: skip
def test_crossing_a_ceiling_fails_the_step_whatever_on_error_says(budget: Budget, text: str, on_error: str) -> None:
    capped = msgspec.structs.replace(prompt(), max_tokens=1)
    specs = plan(
        step("m", capped, map=over("params.items", concurrency=1), on_error=on_error), step("n"),
        budget=budget,
    )  # fmt: skip
    found = run(specs)
    assert (found.snap.run.state, found.snap.run.reason) == ("failed", "budget_exceeded")
    assert found.snap.steps[0].detail == text
    assert [unit for at, unit in dispatches(found.events) if at == 0] == [0, 1, 2]


def test_a_ceiling_that_was_raised_lets_the_run_go_on_over_resumes() -> None:
    capped = msgspec.structs.replace(prompt(), max_tokens=1)
    specs = plan(step("m", capped, map=over("params.items", concurrency=1)), budget=Budget(max_tokens=30))
    done = run(specs)
    for top in (60, 1_000):
        done.add(*ask(done.snap, "raise", {"max_tokens": top}, done.now()).events)
        done.add(*reopen(done.snap, done.now()))
        done.run()
        assert (done.snap.run.state == "completed") == (top == 1_000)
    assert (done.snap.tokens, done.snap.dispatched) == (120, 12)


def test_judges_cost_tokens_and_money_but_no_units() -> None:
    found = run(plan(step("a", prompt(), gate=judged(asked=3))))
    assert (found.snap.tokens, found.snap.cost_usd, found.snap.dispatched) == (40, 2.0, 1)
    found = run(plan(step("a", prompt(), gate=judged(asked=3)), budget=Budget(max_units=1)))
    assert found.snap.run.outcome == "ok"


def test_a_judge_that_cannot_be_paid_is_not_asked_and_the_step_does_not_pass() -> None:
    found = run(plan(step("a", prompt(), gate=judged(asked=3)), budget=Budget(max_cost_usd=0.5)))
    assert (found.snap.run.state, found.snap.run.reason) == ("failed", "budget_exceeded")
    found.add(*ask(found.snap, "raise", {"max_cost_usd": 9}, found.now()).events)
    found.add(*reopen(found.snap, found.now()))
    found.run()
    assert found.snap.run.outcome == "ok"
    assert [unit.id for unit in found.snap.steps[0].asked] == [f"a.gate~r2:l1.j{n}" for n in (1, 2, 3)]


def test_what_sessions_consumed_is_known_as_long_as_every_part_of_it_is() -> None:
    specs = plan(step("m", prompt(), map=over("params.items", concurrency=1)))

    def answer(_step: Step, unit: Unit) -> Outcome:
        said = ev.Answered(session=f"s{unit.index}")
        return msgspec.structs.replace(ok("x"), usage=TEN if unit.index else None, answered_by=said)

    done = simulate(specs, answer, {"items": [0, 1]})
    assert done.snap.sessions == {"s1": Usage(input_tokens=6, output_tokens=4, cost_usd=0.5)}


def test_a_session_that_goes_on_adds_up_and_one_of_an_earlier_driver_stays_unknown() -> None:
    specs = plan(step("a", prompt(), schema={"type": "integer"}))

    def answer(_step: Step, unit: Unit) -> Outcome:
        said = ok("1" if unit.attempt > 1 else "x")
        return msgspec.structs.replace(said, usage=TEN, answered_by=ev.Answered(session="s"))

    done = simulate(specs, answer)
    assert done.snap.sessions == {"s": Usage(input_tokens=12, output_tokens=8, cost_usd=1.0)}
    restored = Simulation(snapshot(specs), answer)
    restored.turn()
    restored.snap.sessions.clear()
    restored.run()
    assert restored.snap.sessions == {}


def paying(specs: Plan, *costs: float) -> Simulation:
    """Return a run whose engine was seen to cost that before, and costs half a dollar now."""
    snap = snapshot(specs, ITEMS)
    snap.cost_seen["e"] = list(costs)
    return Simulation(snap, lambda _s, _u: used(ok("x"), TEN))


def test_money_is_held_back_for_what_is_in_flight_once_the_engine_told_what_it_costs() -> None:
    specs = plan(step("m", prompt(), map=over("params.items", concurrency=4)), budget=Budget(max_cost_usd=4.7))
    done = paying(specs, 0.5, 0.5, 0.5, 0.5, 0.5)
    done.run()
    text = "the budget's max_cost_usd of 4.7 leaves too little (4.5 used) for 0.5 more"
    assert (done.snap.steps[0].detail, done.snap.cost_usd) == (text, 4.5)


@pytest.mark.parametrize(("costs", "begun"), [((0.1, 0.2, 0.3, 0.4, 0.5), 2), ((0.1,) * 5, 10), ((0.5,) * 4, 12)])
def test_only_as_much_begins_at_once_as_can_be_paid(costs: tuple[float, ...], begun: int) -> None:
    specs = plan(step("m", prompt(), map=over("params.items", concurrency=20)), budget=Budget(max_cost_usd=1))
    simulation = paying(specs, *costs)
    simulation.turn()
    assert len([at for at, _ in dispatches(simulation.events) if at == 0]) == begun


def test_a_cost_that_nobody_knows_is_not_held_back() -> None:
    specs = plan(step("m", prompt(), map=over("params.items")), budget=Budget(max_cost_usd=1))
    assert run(specs, Usage(input_tokens=1, output_tokens=1)).snap.run.outcome == "ok"
