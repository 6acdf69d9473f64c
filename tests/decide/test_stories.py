"""Runs from end to end, each for one rule of how steps fail, stop, ask and are asked."""

from __future__ import annotations

import pytest
from tests.decide.runs import by_unit, dispatches

from interlock.decide.next import next_actions
from interlock.decide.reopen import go_on, reopen, retry_left
from interlock.model import canon
from interlock.model.outcome import Outcome
from interlock.model.plan import Command
from interlock.model.run import Step, Unit
from interlock.model.states import Reason, RunState, StepState, UnitState
from interlock.testing.build import aborted, check, failed, ok, over, plan, step
from interlock.testing.simulate import Simulation, simulate

PROBE = Command(text="ask")
EXTERNAL = plan(step("a", effects="external", probe=PROBE), step("b"))
LOST = failed(Reason.TIMEOUT, answered=False)


def states(simulation: Simulation) -> dict[str, str]:
    return {s.id: str(s.state) for s in simulation.snap.steps}


def run_of(simulation: Simulation) -> tuple[str, str | None, str]:
    run = simulation.snap.run
    return run.state, run.reason, run.detail


# failing and stopping


def test_after_the_first_final_failure_running_units_finish_and_the_rest_never_start() -> None:
    specs = plan(
        step("m", map=over("params.items", concurrency=2)), step("n", map=over("params.items", concurrency=2), needs=[])
    )
    bad = by_unit({}, lambda s, u: failed(error="boom") if (s.id, u.index) == ("m", 0) else ok())
    done = simulate(specs, bad, {"items": [1, 2, 3]})
    m, n = done.snap.steps
    assert [str(u.state) for u in m.work] == ["failed", "completed", "not_run"]
    assert [str(u.state) for u in n.work] == ["completed", "completed", "not_run"]
    assert (m.state, m.reason) == (StepState.FAILED, "non_zero_exit")
    assert (n.state, n.reason, n.detail) == (StepState.FAILED, "stopped", "stopped because step 'm' failed")
    assert run_of(done) == ("failed", "non_zero_exit", f"step 'm': unit {m.work[0].id} failed: non_zero_exit: boom")


def test_a_step_whose_work_ended_well_completes_beside_a_failure_unless_a_gate_would_start() -> None:
    ends_last = by_unit({"bad:solo": [failed()]})
    specs = plan(step("bad"), step("plain", needs=[]), step("gated", needs=[], gate=check()))
    done = simulate(specs, ends_last)
    assert states(done) == {"bad": "failed", "plain": "completed", "gated": "failed"}
    assert done.snap.by_id["gated"].reason == "stopped"


def test_a_check_under_way_ends_beside_a_failure_and_one_not_begun_never_begins() -> None:
    specs = plan(step("gated", gate=check()), step("bad", needs=[]))
    done = simulate(specs, by_unit({"bad:solo": [failed()]}), pick=lambda count: count - 1)
    assert states(done)["gated"] == "failed"
    assert [d[0] for d in dispatches(done.events)] == [0, 1]
    under_way = simulate(specs, by_unit({"bad:solo": [failed()]}))
    assert states(under_way) == {"gated": "completed", "bad": "failed"}
    cut_short = simulate(specs, by_unit({"bad:solo": [failed()], "gated.gate:l1": [aborted()]}))
    assert states(cut_short) == {"gated": "failed", "bad": "failed"}
    cut_short.add(*reopen(cut_short.snap, cut_short.now()))
    assert cut_short.run().run.outcome == "ok"
    assert cut_short.snap.steps[0].units[-1].id == "gated.gate~r2:l1"


def test_a_unit_in_backoff_fails_with_its_last_reason_when_the_run_stops() -> None:
    specs = plan(step("slow", retries=2), step("bad", needs=[]))
    done = simulate(specs, by_unit({"slow:solo": [failed(Reason.KILLED)], "bad:solo": [failed()]}))
    slow = done.snap.steps[0].work[0]
    assert (slow.state, slow.reason, slow.retries) == (UnitState.FAILED, Reason.KILLED, 1)
    assert [s.id for s in retry_left(done.snap)] == ["slow"]
    assert go_on(done.snap, done.now()) == []


def test_a_solo_step_that_may_fail_promotes_nothing_and_the_run_is_degraded() -> None:
    done = simulate(plan(step("a", on_error="continue"), step("b")), by_unit({"a:solo": [failed()]}))
    assert done.snap.steps[0].artifact is None
    assert (done.snap.run.state, done.snap.run.outcome) == (RunState.COMPLETED, "degraded")


def test_a_reference_that_finds_nothing_fails_the_step_before_anything_starts() -> None:
    specs = plan(step("a"), step("b", inputs=["steps.a.output.x"]))
    done = simulate(specs, lambda _s, _u: ok("text"))
    assert states(done) == {"a": "completed", "b": "failed"}
    assert dispatches(done.events) == [(0, 0)]
    assert run_of(done) == (
        "failed", "dispatch_error", "step 'b': steps.a.output.x: there is no .x in a string of 4 characters",
    )  # fmt: skip


def test_an_ended_run_has_nothing_more_to_say() -> None:
    done = simulate(plan(step("a")), lambda _s, _u: ok())
    assert next_actions(done.snap, done.now()) == []


def test_a_wrong_decision_is_said_and_not_spun_on() -> None:
    specs = plan(step("a", needs=["b"]), step("b", needs=["a"]))
    with pytest.raises(RuntimeError, match="nothing can move, yet these steps are open: a, b"):
        simulate(specs, lambda _s, _u: ok())


# gates


def test_a_rejected_artifact_blocks_the_run_with_the_feedback_and_resume_asks_again() -> None:
    specs = plan(step("a", gate=check()), step("b"))
    answers = by_unit({"a.gate:l1": [ok("too short\n", exit_code=1)]})
    done = simulate(specs, answers)
    assert run_of(done) == ("blocked", "gate_rejected", "step 'a': too short")
    assert go_on(done.snap, done.now()) == []
    done.add(*reopen(done.snap, done.now()))
    done.run()
    assert done.snap.run.outcome == "ok"
    assert [u.id for u in done.snap.steps[0].units] == ["a:solo", "a.gate:l1", "a.gate~r2:l1"]


def test_a_check_that_says_nothing_leaves_no_open_end() -> None:
    done = simulate(plan(step("a", gate=check())), by_unit({"a.gate:l1": [ok("", exit_code=127)]}))
    assert run_of(done)[2] == "step 'a': a.gate:l1 gave no verdict: spawn_failed: exit code 127"


def test_a_check_that_cannot_start_blocks_and_the_next_run_asks_again() -> None:
    specs = plan(step("a", gate=check()), step("b"))
    done = simulate(specs, by_unit({"a.gate:l1": [ok("not found", exit_code=127)]}))
    assert run_of(done) == (
        "blocked", "check_unavailable",
        "step 'a': a.gate:l1 gave no verdict: spawn_failed: exit code 127: not found",
    )  # fmt: skip
    done.add(*go_on(done.snap, done.now()))
    assert done.run().run.outcome == "ok"
    assert done.snap.steps[0].units[1].attempt == 2


def test_resume_asks_an_unavailable_check_again_too() -> None:
    done = simulate(plan(step("a", gate=check())), by_unit({"a.gate:l1": [failed(Reason.TIMEOUT)]}))
    done.add(*reopen(done.snap, done.now()))
    assert done.run().run.outcome == "ok"


def test_each_item_is_judged_by_its_own_result_and_failed_ones_are_not() -> None:
    specs = plan(step("m", map=over("params.items"), on_error="continue", gate=check(each=True)))
    asked: list[tuple[int | None, str | None]] = []

    def answer(_step: Step, unit: Unit) -> Outcome:
        if unit.kind == "gate":
            asked.append((unit.index, unit.subject))
            return ok("bad item", exit_code=1) if unit.index == 2 else ok()
        return failed() if unit.index == 0 else ok(f"r{unit.index}")

    done = simulate(specs, answer, {"items": ["a", "b", "c"]})
    assert asked == [(1, canon.sha256(b'"r1"')), (2, canon.sha256(b'"r2"'))]
    assert run_of(done) == ("blocked", "gate_rejected", "step 'm': item \"c\": bad item")
    digest = canon.item_digest(b'"b"')
    assert done.snap.steps[0].units[3].id == f"m.gate:{digest}:l1"


def test_a_gate_of_an_empty_map_has_nothing_to_judge_item_by_item() -> None:
    each = plan(step("m", map=over("params.items"), gate=check(each=True)))
    whole = plan(step("m", map=over("params.items"), gate=check()))
    assert dispatches(simulate(each, lambda _s, _u: ok(), {"items": []}).events) == []
    assert dispatches(simulate(whole, lambda _s, _u: ok(), {"items": []}).events) == [(0, 0)]


def test_an_interrupted_check_is_asked_again() -> None:
    done = simulate(plan(step("a", gate=check())), by_unit({"a.gate:l1": [aborted()]}))
    assert done.snap.run.outcome == "ok"
    assert done.snap.steps[0].units[1].attempt == 2
