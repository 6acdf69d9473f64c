"""Runs from end to end, each for one rule of how steps fail, stop, ask and are asked."""

from __future__ import annotations

import pytest
from tests.decide.runs import by_unit, dispatches

from interlock.decide import requests
from interlock.decide.next import next_actions
from interlock.decide.reopen import close_lost, divergences, go_on, reopen, retry_left
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.outcome import Outcome
from interlock.model.plan import Budget, Command
from interlock.model.run import Step, Unit
from interlock.model.states import Reason, RunState, StepState, UnitState
from interlock.testing.build import aborted, check, failed, ok, over, plan, solo, step
from interlock.testing.simulate import Simulation, simulate, snapshot

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
    specs = plan(step("a"), step("b"))
    simulation = Simulation(snapshot(specs), lambda _s, _u: ok())
    simulation.snap.steps[0].state = StepState.WAITING
    with pytest.raises(RuntimeError, match="nothing can move, yet these steps are open: a, b"):
        simulation.run()


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


# external effects


def test_an_effect_of_unknown_outcome_is_probed_and_its_answer_is_the_result() -> None:
    done = simulate(EXTERNAL, by_unit({"a:solo": [LOST], "a.probe:solo~r1:a1": [ok("receipt\n")]}))
    assert done.snap.steps[0].artifact == b'"receipt"'
    assert done.snap.steps[0].work[0].attempt == 1
    assert done.snap.run.outcome == "ok"


def test_an_effect_that_did_not_happen_is_tried_again_and_asked_about_again() -> None:
    answers = {
        "a:solo": [LOST, aborted(), ok("third")],
        "a.probe:solo~r1:a1": [ok(exit_code=1)],
        "a.probe:solo~r1:a2": [ok(exit_code=1)],
    }
    done = simulate(EXTERNAL, by_unit(answers))
    assert done.snap.steps[0].artifact == b'"third"'
    assert done.snap.steps[0].work[0].attempt == 3


def test_a_probe_without_an_answer_blocks_and_the_next_run_asks_again() -> None:
    done = simulate(
        EXTERNAL, by_unit({"a:solo": [LOST], "a.probe:solo~r1:a1": [ok("db down", exit_code=3), ok("done")]})
    )
    assert run_of(done) == (
        "blocked", "probe_unavailable",
        "step 'a': it is not known whether these took effect: a:solo; the probe gave no answer: exit code 3: db down",
    )  # fmt: skip
    done.add(*go_on(done.snap, done.now()))
    assert done.run().steps[0].artifact == b'"done"'


def test_a_probe_whose_answer_misses_the_schema_fails_the_unit() -> None:
    specs = plan(step("a", effects="external", probe=PROBE, schema={"type": "integer"}))
    done = simulate(specs, by_unit({"a:solo": [LOST], "a.probe:solo~r1:a1": [ok("text")]}))
    assert run_of(done) == ("failed", "parse_error", "step 'a': unit a:solo failed: parse_error")


def test_a_probe_stopped_by_a_failure_elsewhere_is_asked_anew_after_resume() -> None:
    specs = plan(step("a", effects="external", probe=PROBE), step("bad", needs=[]))
    answers = {"a:solo": [LOST], "a.probe:solo~r1:a1": [aborted()], "bad:solo": [failed()]}
    done = simulate(specs, by_unit(answers))
    assert states(done) == {"a": "failed", "bad": "failed"}
    assert done.snap.steps[0].counts[UnitState.UNKNOWN] == 1
    done.add(*reopen(done.snap, done.now()))
    done.run()
    assert done.snap.run.outcome == "ok"
    assert done.snap.steps[0].units[-1].id == "a.probe:solo~r2:a1"


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_crash_in_any_window_of_an_external_effect_never_repeats_it_unasked(cut: int) -> None:
    whole = simulate(EXTERNAL, by_unit({}, lambda _s, u: ok("done") if u.kind == "work" else ok(exit_code=1)))
    prefix = whole.events[:cut]
    again = simulate(EXTERNAL, by_unit({}, lambda _s, _u: ok("done")), prefix=prefix)
    begun = (0, 0) in dispatches(prefix)
    assert ((0, 0) in dispatches(again.events)) is not begun
    assert again.snap.run.outcome == "ok"
    assert again.snap.steps[0].artifact == b'"done"'


NO_PROBE = plan(step("a", effects="external", schema={"type": "integer"}), step("b"))


def blocked() -> Simulation:
    done = simulate(NO_PROBE, by_unit({"a:solo": [LOST]}, lambda _s, _u: ok("1")))
    assert run_of(done) == (
        "blocked", "effect_unknown", "step 'a': it is not known whether these took effect: a:solo",
    )  # fmt: skip
    return done


def test_without_a_probe_a_person_may_say_that_it_is_done() -> None:
    done = blocked()
    assert go_on(done.snap, done.now()) == []
    assert reopen(done.snap, done.now()) == []
    answer = requests.answer(done.snap, "resolve", {"unit": "a:solo", "done": True, "result": 7}, done.now())
    assert answer.outcome == "applied"
    done.add(*answer.events)
    assert done.run().steps[0].artifact == b"7"
    assert done.snap.steps[0].work[0].reason == "resolved_done"


def test_or_that_it_shall_run_again() -> None:
    done = blocked()
    done.add(*requests.answer(done.snap, "resolve", {"unit": "a:solo", "done": False}, done.now()).events)
    assert done.run().steps[0].artifact == b"1"
    assert done.snap.steps[0].work[0].attempt == 2


@pytest.mark.parametrize(
    ("payload", "outcome"),
    [
        ({"unit": "z:solo", "done": True}, "no unit 'z:solo' in this run"),
        ({"unit": "b:solo", "done": True}, "no unit 'b:solo' in this run"),
        (
            {"unit": "a:solo", "done": True, "result": "x"},
            'the result misses the step\'s schema: value: "x" is not of type "integer"',
        ),
        (
            {"unit": "a:solo", "done": True},
            'the result misses the step\'s schema: value: null is not of type "integer"',
        ),
    ],
)
def test_a_wrong_answer_is_refused_with_the_reason(payload: dict[str, object], outcome: str) -> None:
    done = blocked()
    assert requests.answer(done.snap, "resolve", payload, done.now()) == requests.Answer((), outcome)


def test_only_an_unknown_unit_can_be_resolved() -> None:
    done = simulate(plan(step("a")), lambda _s, _u: ok())
    answer = requests.answer(done.snap, "resolve", {"unit": "a:solo", "done": True}, done.now())
    assert answer.outcome == "unit 'a:solo' is completed, not unknown"


def test_a_result_that_is_no_json_is_refused() -> None:
    deep: object = 1
    for _ in range(70):
        deep = [deep]
    done = simulate(plan(step("a", effects="external")), by_unit({"a:solo": [LOST]}))
    answer = requests.answer(done.snap, "resolve", {"unit": "a:solo", "done": True, "result": deep}, done.now())
    assert answer.outcome == "the result is not JSON: more than 64 levels of nesting"


def test_a_unit_resolved_while_its_step_goes_on_unblocks_nothing_else() -> None:
    specs = plan(step("m", effects="external", map=over("params.items", concurrency=1)))
    simulation = Simulation(snapshot(specs, {"items": [1, 2]}), lambda _s, u: LOST if u.index == 0 else ok("x"))
    simulation.turn()
    first = simulation.snap.steps[0].work[0]
    assert first.state is UnitState.UNKNOWN
    answer = requests.answer(simulation.snap, "resolve", {"unit": first.id, "done": True}, simulation.now())
    assert [type(event) for event in answer.events] == [ev.UnitMoved]
    simulation.add(*answer.events)
    assert simulation.run().steps[0].artifact == b'[null,"x"]'


def test_an_unknown_request_is_refused_and_a_ceiling_raised() -> None:
    done = simulate(plan(step("a")), lambda _s, _u: ok())
    assert (
        requests.answer(done.snap, "dance", {}, done.now()).outcome == "this version does not know the request 'dance'"
    )
    raised = requests.answer(done.snap, "raise", {"max_units": 5}, done.now()).events
    assert raised == (ev.BudgetRaised(at=done.at, name="max_units", value=5),)


# abandon and reopen


def test_an_abandoned_run_counts_what_never_ran_and_resume_takes_up_only_that() -> None:
    specs = plan(step("m", map=over("params.items", concurrency=1)), step("n"))
    simulation = Simulation(snapshot(specs, {"items": [1, 2, 3]}), lambda _s, _u: ok("x"))
    simulation.turn()
    simulation.add(*requests.abandon(simulation.snap, simulation.now()))
    assert (simulation.snap.run.state, simulation.snap.run.outcome) == (RunState.ABANDONED, "abandoned")
    assert [str(u.state) for u in simulation.snap.steps[0].work] == ["completed", "not_run", "not_run"]
    assert simulation.snap.steps[1].state is StepState.PENDING
    simulation.add(*reopen(simulation.snap, simulation.now()))
    simulation.run()
    assert simulation.snap.run.outcome == "ok"
    assert [u.id[-3:] for u in simulation.snap.steps[0].work[1:]] == ["~r2", "~r2"]
    assert len(dispatches(simulation.events)) == 4


def test_a_run_abandoned_before_its_first_step_can_be_resumed() -> None:
    simulation = Simulation(snapshot(plan(step("a"))), lambda _s, _u: ok())
    simulation.add(*requests.abandon(simulation.snap, simulation.now()))
    simulation.add(*reopen(simulation.snap, simulation.now()))
    assert simulation.run().run.outcome == "ok"


def test_a_blocked_run_is_active_for_the_moment_in_which_its_steps_are_abandoned() -> None:
    done = blocked()
    events = requests.abandon(done.snap, done.now())
    assert isinstance(events[0], ev.RunMoved)
    assert events[0].state is RunState.ACTIVE
    done.add(*events)
    assert done.snap.steps[0].state is StepState.FAILED
    assert done.snap.steps[0].counts[UnitState.UNKNOWN] == 1


def test_a_failed_run_with_a_blocked_step_can_be_abandoned() -> None:
    specs = plan(step("a", gate=check()), step("bad", needs=[]))
    answers = {"a.gate:l1": [ok(exit_code=1)], "bad:solo": [failed()]}
    order = iter([0, 1, 0])
    done = simulate(specs, by_unit(answers), pick=lambda _count: next(order))
    assert states(done) == {"a": "blocked", "bad": "failed"}
    done.add(*requests.abandon(done.snap, done.now()))
    assert states(done) == {"a": "failed", "bad": "failed"}
    assert done.snap.run.state is RunState.ABANDONED


def test_a_reopened_step_keeps_its_completed_units_and_its_spent_retries_are_forgiven() -> None:
    specs = plan(step("m", map=over("params.items", concurrency=2), retries=1))
    bad = simulate(specs, lambda _s, u: failed() if u.index == 1 else ok("x"), {"items": [1, 2]})
    assert run_of(bad)[0] == "failed"
    assert go_on(bad.snap, bad.now()) == []
    again = Simulation(bad.snap, lambda _s, u: failed() if u.retries == 0 else ok("y"))
    again.add(*reopen(again.snap, again.now()))
    assert again.run().steps[0].artifact == b'["x","y"]'
    assert [u.id.partition("~")[2] for u in again.snap.steps[0].units] == ["", "", "r2"]
    assert again.snap.run.outcome == "ok"


def test_a_step_that_failed_before_it_had_units_begins_anew() -> None:
    specs = plan(step("a", inputs=["params.p"]))
    bad = simulate(specs, lambda _s, _u: ok())
    bad.add(*reopen(bad.snap, bad.now()))
    assert bad.snap.steps[0].state is StepState.PENDING
    bad.run()
    assert run_of(bad)[0] == "failed"


def test_a_changed_module_waits_for_consent_and_then_goes_on_where_it_was() -> None:
    simulation = Simulation(snapshot(plan(step("a"))), lambda _s, _u: ok("x"))
    simulation.add(*[e for e in next_actions(simulation.snap, simulation.now()) if isinstance(e, ev.StepStarted)])
    simulation.add(ev.StepMoved(at=1, step=0, state=StepState.BLOCKED, reason="module_changed", detail="it changed"))
    simulation.run()
    assert run_of(simulation) == ("blocked", "module_changed", "step 'a': it changed")
    simulation.add(*reopen(simulation.snap, simulation.now()), ev.ModulesAccepted(at=1, hashes={"f": "sha256:1"}))
    assert simulation.run().run.outcome == "ok"
    assert simulation.snap.accepted == {"f": "sha256:1"}


def test_units_in_backoff_of_a_blocked_step_keep_no_run_open() -> None:
    simulation = Simulation(snapshot(plan(step("a", retries=1))), lambda _s, _u: failed())
    simulation.turn()
    assert simulation.snap.steps[0].backoff
    simulation.add(ev.StepMoved(at=1, step=0, state=StepState.BLOCKED, reason="module_changed"))
    simulation.run()
    assert simulation.snap.run.state is RunState.BLOCKED


def test_an_active_run_can_be_reopened_where_its_driver_died_while_it_stopped() -> None:
    specs = plan(step("bad"), step("m", needs=[], map=over("params.items", concurrency=1)))
    simulation = Simulation(snapshot(specs, {"items": [1, 2]}), by_unit({"bad:solo": [failed()]}))
    simulation.turn()
    for action in next_actions(simulation.snap, simulation.now()):
        simulation.act(action)
    assert simulation.snap.steps[0].state is StepState.FAILED
    again = Simulation(simulation.snap, lambda _s, _u: ok())
    again.take_over()
    again.add(*reopen(again.snap, again.now()))
    assert again.run().run.outcome == "ok"


def test_a_run_whose_failed_units_all_have_retries_left_goes_on_by_itself() -> None:
    specs = plan(step("a", retries=2), budget=Budget(max_units=1))
    done = simulate(specs, by_unit({"a:solo": [failed()]}))
    assert run_of(done) == ("failed", "budget_exceeded", "step 'a': the budget's max_units of 1 is used up (1)")
    done.add(ev.BudgetRaised(at=1, name="max_units", value=5), *go_on(done.snap, done.now()))
    assert done.run().run.outcome == "ok"


def test_a_step_whose_inputs_are_gone_is_reopened_all_the_same() -> None:
    specs = plan(step("a", inputs=["params.gone"]))
    simulation = Simulation(snapshot(specs), lambda _s, _u: ok())
    simulation.add(
        ev.StepStarted(at=1, step=0, round=1, loop=1, units=(solo(),)),
        ev.UnitsStopped(at=1, step=0, reason="stopped"),
        ev.StepMoved(at=1, step=0, state=StepState.FAILED),
        *reopen(simulation.snap, simulation.now()),
    )
    (started,) = [event for event in reopen(simulation.snap, simulation.now()) if isinstance(event, ev.StepStarted)]
    assert [(unit.id, unit.input_hash) for unit in started.units] == [("a:solo~r2", "")]


# going on after a crash


def test_what_a_dead_driver_left_open_is_lost_and_charges_no_retry() -> None:
    specs = plan(step("a", retries=1, gate=check()))
    simulation = Simulation(snapshot(specs), lambda _s, _u: failed())
    simulation.turn()
    while not simulation.snap.running:
        simulation.at += 10
        for action in next_actions(simulation.snap, simulation.now()):
            simulation.act(action)
    (closed,) = close_lost(simulation.snap, simulation.now())
    assert isinstance(closed, ev.AttemptFinished)
    assert (closed.state, closed.unit_state, closed.retries, closed.number) == ("lost", "pending", 1, 2)


def test_a_recorded_input_that_differs_is_a_divergence_of_completed_units_only() -> None:
    specs = plan(step("m", map=over("params.items", concurrency=1)))
    simulation = Simulation(snapshot(specs, {"items": [1, 2]}), lambda _s, _u: ok())
    assert divergences(simulation.snap, {}, simulation.now()) == []
    simulation.turn()
    started = next(e for e in simulation.events if isinstance(e, ev.StepStarted))
    true_hash = started.units[0].input_hash

    def found(recorded: str) -> list[ev.Event]:
        return divergences(simulation.snap, {(0, 0): recorded}, simulation.now())

    assert found(true_hash) == []
    assert found("sha256.v0:abc") == []
    other = ev.Divergence(at=simulation.at, step=0, unit=0, recorded="sha256.v1:abc", computed=true_hash)
    assert found("sha256.v1:abc") == [other]


def test_notices_and_audits_change_no_decision() -> None:
    specs = plan(step("a"))
    simulation = Simulation(snapshot(specs), lambda _s, _u: ok())
    simulation.add(
        ev.Notice(at=1, code="n", text="t"),
        ev.EnvResolved(at=1, step=0, names=("X",)),
        ev.RequestApplied(at=1, request=1, outcome="applied"),
    )
    assert simulation.snap.noticed == {"n"}
    assert simulation.run().run.outcome == "ok"
