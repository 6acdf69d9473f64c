"""Feedback loops of prompts, across failures, rounds and crashes."""

from __future__ import annotations

from interlock.decide.reopen import close_lost, divergences, reopen
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.outcome import Outcome
from interlock.model.run import Step, Unit
from interlock.testing.build import failed, judged, ok, over, plan, prompt, step
from interlock.testing.simulate import Answer, Simulation, simulate, snapshot

NO = ok(canon.dumps({"complete": False, "feedback": "again", "missing": ["x"]}))
YES = ok(canon.dumps({"complete": True}))
FEEDBACK = canon.dumps({"feedback": "again", "missing": ["x"]})
SPECS = plan(step("a", prompt(), gate=judged(loops=3)))


def rejects(times: int, broken: str = "") -> Answer:
    left = [NO] * times

    def answer(_step: Step, unit: Unit) -> Outcome:
        if unit.kind == "judge":
            return left.pop() if left else YES
        return failed() if unit.id == broken else ok("text")

    return answer


def test_a_rejected_prompt_runs_again_with_the_feedback_until_it_passes_or_its_loops_are_spent() -> None:
    done = simulate(SPECS, rejects(2))
    assert [unit.id for unit in done.snap.steps[0].units] == [
        "a:solo", "a.gate:l1.j1", "a:solo~l2", "a.gate:l2.j1", "a:solo~l3", "a.gate:l3.j1",
    ]  # fmt: skip
    assert done.snap.run.outcome == "ok"
    spent = simulate(SPECS, rejects(3))
    assert (spent.snap.run.state, spent.snap.run.reason) == ("blocked", "gate_rejected")


def test_a_unit_reopened_in_a_later_loop_keeps_that_loop_and_its_feedback() -> None:
    done = simulate(SPECS, rejects(1, "a:solo~l2"))
    assert done.snap.run.state == "failed"
    again = Simulation(done.snap, rejects(0))
    again.add(*reopen(again.snap, again.now()))
    again.run()
    unit = again.snap.steps[0].work[0]
    assert (unit.id, unit.feedback) == ("a:solo~r2~l2", FEEDBACK)
    assert again.snap.steps[0].units[-1].id == "a.gate~r2:l2.j1"
    assert again.snap.run.outcome == "ok"


def test_a_completed_unit_of_a_later_loop_is_no_divergence() -> None:
    specs = plan(step("m", prompt(), map=over("params.items", concurrency=1), gate=judged(loops=2)))
    simulation = Simulation(snapshot(specs, {"items": [1, 2]}), rejects(1))
    while simulation.snap.steps[0].loop == 1 or simulation.snap.steps[0].running or not _half(simulation):
        simulation.turn()
    recorded = {
        (0, new.ordinal): new.input_hash
        for event in simulation.events
        if isinstance(event, ev.StepStarted)
        for new in event.units
    }
    assert divergences(simulation.snap, recorded, simulation.now()) == []


def _half(simulation: Simulation) -> bool:
    return simulation.snap.steps[0].work[0].state == "completed"


def test_a_crash_during_the_one_re_ask_grants_no_second_and_charges_what_was_reserved() -> None:
    specs = plan(step("a", prompt(), schema={"type": "string"}))
    simulation = Simulation(snapshot(specs), lambda _s, _u: ok("mumble"))
    simulation.turn()
    assert simulation.snap.steps[0].work[0].asks == 1
    reserved = ev.AttemptReserved(
        at=1, step=0, unit=0, number=2, dispatch="d", engine="e", model="m", reserve_tokens=500
    )
    simulation.add(reserved)
    before = simulation.snap.tokens
    simulation.add(*close_lost(simulation.snap, simulation.now()))
    assert simulation.snap.steps[0].work[0].asks == 1
    assert simulation.snap.tokens - before == 500
    assert simulation.snap.reserved_tokens == 0
    simulation.run()
    assert (simulation.snap.run.state, simulation.snap.run.reason) == ("failed", "parse_error")
    assert simulation.snap.steps[0].work[0].attempt == 3
