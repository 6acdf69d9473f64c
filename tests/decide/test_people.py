"""What people say to gates: for which artifact it holds, what it changes, and what it leaves alone."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.decide.runs import by_unit, dispatches

from interlock.decide import requests
from interlock.decide.reopen import grant, reopen
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.outcome import Outcome
from interlock.model.plan import Command, Gate, Plan
from interlock.model.run import Step, Unit
from interlock.model.states import StepState, UnitState
from interlock.testing.build import failed, judged, ok, over, plan, prompt, step
from interlock.testing.simulate import Simulation, simulate, snapshot

ITEMS = {"items": ["x", "y"]}
X, Y = canon.item_digest(b'"x"'), canon.item_digest(b'"y"')
NO = json.dumps({"complete": False, "missing": ["m"], "feedback": "thin"})
YES = json.dumps({"complete": True})
APPROVAL = Gate(approval=True, max_loops=2)


def run(specs: Plan, answers: dict[str, list[Outcome]] | None = None, *, verdict: str = YES) -> Simulation:
    def other(_step: Step, unit: Unit) -> Outcome:
        return ok(verdict if unit.kind == "judge" else f"made by {unit.id}")

    return simulate(specs, by_unit(answers or {}, other), ITEMS)


def say(simulation: Simulation, kind: str, **payload: Any) -> str:
    """Ask as the command line does; the run goes on."""
    answer = requests.answer(simulation.snap, kind, {"by": "me", **payload}, simulation.now())
    simulation.add(*answer.events)
    simulation.take_over()
    simulation.run()
    return answer.outcome


def state(simulation: Simulation) -> tuple[str, str | None]:
    return simulation.snap.run.state, simulation.snap.run.reason


def work(simulation: Simulation) -> list[str]:
    return [unit.id for unit in simulation.snap.steps[0].units if unit.kind == "work"]


def verdicts(simulation: Simulation) -> list[ev.Approved]:
    return [event for event in simulation.events if isinstance(event, ev.Approved)]


def test_an_approval_is_kept_with_who_when_note_and_what_it_was_for() -> None:
    done = run(plan(step("a", prompt(), gate=APPROVAL), step("b")))
    assert state(done) == ("blocked", "approval_needed")
    assert done.snap.steps[0].detail == "a person has to approve its artifact"
    assert say(done, "approve", note="fine") == "applied"
    assert done.snap.run.outcome == "ok"
    (said,) = verdicts(done)
    assert said == ev.Approved(
        at=said.at, step=0, unit=1, by="me", verdict="pass", note="fine", subject=canon.sha256(b'"made by a:solo"')
    )


def test_a_rejection_with_a_note_is_one_more_loop_with_the_note_and_the_next_artifact_asks_anew() -> None:
    done = run(plan(step("a", prompt(), gate=Gate(approval=True))))
    for loop, note in enumerate(("name the sources", "and the dates"), 2):
        assert say(done, "reject", note=note) == "applied"
        unit = done.snap.steps[0].work[0]
        assert (unit.id, unit.feedback) == (f"a:solo~l{loop}", canon.dumps({"feedback": note, "missing": []}))
        assert state(done) == ("blocked", "approval_needed")
    assert [unit.id for unit in done.snap.steps[0].asked] == ["a.gate:l3.approval"]
    say(done, "approve")
    assert done.snap.run.outcome == "ok"


@pytest.mark.parametrize("target", [prompt(), "true"], ids=["a prompt", "a command"])
def test_a_rejection_without_a_note_fails_the_step(target: Any) -> None:
    done = run(plan(step("a", target, gate=APPROVAL)))
    say(done, "reject")
    assert (state(done), done.snap.steps[0].detail) == (("failed", "rejected"), "a person rejected it")


def test_a_rejection_of_what_cannot_loop_fails_the_step_with_the_note() -> None:
    done = run(plan(step("a", gate=APPROVAL)))
    say(done, "reject", note="not like this")
    assert (state(done), done.snap.steps[0].detail) == (("failed", "rejected"), "not like this")


def test_a_step_rejected_for_good_is_asked_about_again_when_it_is_reopened() -> None:
    done = run(plan(step("a", prompt(), gate=APPROVAL)))
    say(done, "reject")
    done.add(*reopen(done.snap, done.now()))
    done.run()
    assert state(done) == ("blocked", "approval_needed")
    assert [unit.id for unit in done.snap.steps[0].asked] == ["a.gate~r2:l1.approval"]
    assert work(done) == ["a:solo"]


def test_stages_are_asked_in_order_and_a_stage_that_says_no_is_the_last() -> None:
    gate = Gate(check=Command(text="look"), judge=judged().judge, approval=True)
    done = run(plan(step("a", gate=gate)), {"a.gate:l1": [ok("bad", exit_code=1)]})
    assert [unit.id for unit in done.snap.steps[0].asked] == ["a.gate:l1"]
    assert (state(done), done.snap.steps[0].detail) == (("blocked", "gate_rejected"), "bad")
    done = run(plan(step("a", gate=gate)), verdict=NO)
    assert [unit.id for unit in done.snap.steps[0].asked] == ["a.gate:l1", "a.gate:l1.j1"]
    done = run(plan(step("a", gate=gate)))
    assert [unit.id for unit in done.snap.steps[0].asked] == ["a.gate:l1", "a.gate:l1.j1", "a.gate:l1.approval"]
    assert state(done) == ("blocked", "approval_needed")


def test_a_gate_that_rejected_is_passed_by_override_only_and_the_override_is_kept() -> None:
    done = run(plan(step("a", prompt(), gate=judged())), verdict=NO)
    assert say(done, "approve") == (
        "step 'a' was rejected or could not be judged; pass it all the same with --override"
    )
    assert say(done, "approve", override=True) == "applied"
    assert done.snap.run.outcome == "ok"
    assert [(said.override, said.subject) for said in verdicts(done)] == [(True, canon.sha256(b'"made by a:solo"'))]


@pytest.mark.parametrize("reason", ["check_unavailable", "judge_unavailable"])
def test_what_cannot_be_judged_is_passed_by_a_person(reason: str) -> None:
    gate = Gate(check=Command(text="look")) if reason == "check_unavailable" else judged()
    done = run(plan(step("a", gate=gate)), {"a.gate:l1": [ok(exit_code=127)], "a.gate:l1.j1": [failed()]})
    assert state(done) == ("blocked", reason)
    say(done, "approve", override=True)
    assert done.snap.run.outcome == "ok"


def test_an_override_of_one_item_touches_no_other_and_nothing_that_passed() -> None:
    specs = plan(step("m", prompt(), map=over("params.items"), gate=judged(each=True)))
    done = run(specs, {f"m.gate:{Y}:l1.j1": [ok(YES)]}, verdict=NO)
    assert say(done, "approve", target=f"m.gate:{Y}:l1.j1", override=True) == f"'m.gate:{Y}:l1.j1' has passed already"
    assert say(done, "approve", target=f"m.gate:{X}:l1.j1", override=True) == "applied"
    assert done.snap.run.outcome == "ok"
    assert [said.unit for said in verdicts(done)] == [4]
    done = run(specs, {f"m.gate:{Y}:l1.j1": [ok(YES)]}, verdict=NO)
    say(done, "reject", note="do it")
    assert work(done) == [f"m:{X}", f"m:{Y}", f"m:{X}~l2"]


def test_one_item_rejected_by_both_judge_and_override_is_left_when_the_other_is_passed() -> None:
    specs = plan(step("m", prompt(), map=over("params.items"), gate=judged(each=True)))
    done = run(specs, verdict=NO)
    say(done, "approve", target=f"m.gate:{X}:l1.j1", override=True)
    assert state(done) == ("blocked", "gate_rejected")
    say(done, "approve", override=True)
    assert done.snap.run.outcome == "ok"
    assert [said.unit for said in verdicts(done)] == [4, 5]


def test_items_are_approved_one_by_one_and_only_those_rejected_loop() -> None:
    specs = plan(step("m", prompt(), map=over("params.items"), gate=Gate(approval=True, each=True, max_loops=2)))
    done = run(specs)
    assert done.snap.steps[0].detail == 'a person has to approve item "x"'
    say(done, "approve", target=f"m.gate:{X}:l1.approval")
    assert state(done) == ("blocked", "approval_needed")
    assert (
        say(done, "approve", target=f"m.gate:{X}:l1.approval")
        == f"'m.gate:{X}:l1.approval' is not waiting for a person"
    )
    say(done, "reject", target=f"m.gate:{Y}:l1.approval", note="again")
    assert work(done) == [f"m:{X}", f"m:{Y}", f"m:{Y}~l2"]
    assert [unit.id for unit in done.snap.steps[0].asked] == [f"m.gate:{Y}:l2.approval"]
    say(done, "approve", target="m")
    assert done.snap.run.outcome == "ok"


def test_a_note_on_one_item_is_worth_a_loop_though_others_still_wait() -> None:
    done = run(plan(step("m", prompt(), map=over("params.items"), gate=Gate(approval=True, each=True))))
    say(done, "reject", target=f"m.gate:{X}:l1.approval", note="again")
    assert state(done) == ("blocked", "approval_needed")
    say(done, "reject", target=f"m.gate:{Y}:l1.approval", note="too")
    assert work(done) == [f"m:{X}", f"m:{Y}", f"m:{X}~l2", f"m:{Y}~l2"]
    assert done.snap.granted == {0: 1}


def test_all_items_that_wait_can_be_approved_at_once() -> None:
    done = run(plan(step("m", prompt(), map=over("params.items"), gate=Gate(approval=True, each=True))))
    say(done, "approve", target="m")
    assert [said.unit for said in verdicts(done)] == [2, 3]
    assert done.snap.run.outcome == "ok"


def test_an_item_that_waits_can_be_approved_while_another_cannot_be_judged() -> None:
    gate = Gate(judge=judged().judge, approval=True, each=True)
    done = run(plan(step("m", prompt(), map=over("params.items"), gate=gate)), {f"m.gate:{X}:l1.j1": [failed()]})
    assert state(done) == ("blocked", "judge_unavailable")
    answer = requests.answer(done.snap, "approve", {"by": "me", "target": "m"}, done.now())
    assert (answer.outcome, len(answer.events)) == ("applied", 3)


def test_who_is_asked_about_items_is_told_which_were_rejected_already() -> None:
    gate = Gate(check=Command(text="look"), approval=True, each=True)
    rejected = {f"m.gate:{X}:l1": [ok("no good", exit_code=1)]}
    done = run(plan(step("m", map=over("params.items"), gate=gate)), rejected)
    assert state(done) == ("blocked", "approval_needed")
    assert done.snap.steps[0].detail == 'a person has to approve item "y"; rejected already: item "x": no good'
    say(done, "approve", target="m")
    assert state(done) == ("blocked", "gate_rejected")
    assert done.snap.steps[0].detail == 'item "x": no good'


def test_a_person_must_say_which_of_several_steps_is_meant() -> None:
    specs = plan(step("a", needs=[], gate=APPROVAL), step("b", needs=[], gate=APPROVAL), step("c", needs=[]))
    done = run(specs)
    assert say(done, "approve") == "several steps wait: name one of a, b"
    assert say(done, "approve", target="zzz") == "no step or gate 'zzz' in this run"
    assert say(done, "approve", target="c") == "'c' does not wait for a person; 'a', 'b' do"
    assert say(done, "approve", target="a.gate:l1.approval") == "applied"
    assert say(done, "reject", target="a") == "'a' does not wait for a person; 'b' does"
    assert say(done, "approve") == "applied"
    assert done.snap.run.outcome == "ok"


def test_a_verdict_while_other_steps_run_is_taken_at_once() -> None:
    specs = plan(step("a", needs=[], gate=APPROVAL), step("b", needs=[]), step("c", needs=["a"]))
    done = Simulation(snapshot(specs), lambda _s, _u: ok("x"))
    while done.snap.steps[0].state is not StepState.BLOCKED:
        done.turn()
    assert done.snap.run.state == "active"
    answer = requests.answer(done.snap, "approve", {"by": "me"}, done.now())
    assert [type(event) for event in answer.events] == [ev.StepMoved, ev.Approved]
    done.add(*answer.events)
    assert done.run().run.outcome == "ok"


def test_a_run_that_failed_is_reopened_before_its_gates_are_answered() -> None:
    specs = plan(step("a", needs=[], gate=APPROVAL), step("b", needs=[]))
    done = run(specs, {"b:solo": [failed()]})
    assert [s.state for s in done.snap.steps] == ["blocked", "failed"]
    assert say(done, "approve") == "the run failed; reopen it first: interlock resume run"
    assert state(done)[0] == "failed"
    done.add(*reopen(done.snap, done.now()))
    done.run()
    assert say(done, "approve") == "applied"
    assert done.snap.run.outcome == "ok"


@pytest.mark.parametrize(("done", "tries"), [(True, 1), (False, 2)])
def test_an_unknown_effect_in_a_run_that_failed_is_resolved_there_and_goes_on_when_it_is_reopened(
    *, done: bool, tries: int
) -> None:
    specs = plan(step("a", needs=[], effects="external"), step("b", needs=[]))
    unsure = msgspec.structs.replace(failed(), answered=False)
    lived = simulate(specs, by_unit({"a:solo": [unsure, ok("x")], "b:solo": [failed()]}))
    assert say(lived, "resolve", unit="a:solo", done=done) == "applied"
    assert (lived.snap.run.state, lived.snap.steps[0].state) == ("failed", "blocked")
    lived.add(*reopen(lived.snap, lived.now()))
    lived.run()
    assert lived.snap.run.outcome == "ok"
    assert lived.snap.steps[0].units[0].attempt == tries


def test_a_step_whose_artifact_is_gone_has_nothing_to_override() -> None:
    specs = plan(step("a", gate=Gate(check=Command(text="look"))))
    done = run(specs, {"a.gate:l1": [ok("no", exit_code=1)]})
    tiny = msgspec.structs.replace(specs, limits=msgspec.structs.replace(specs.limits, max_artifact_bytes=1))
    done.snap.plan = tiny
    assert say(done, "approve", override=True) == "step 'a' has no artifact to pass"


# loops


def test_loops_that_are_granted_go_on_with_the_feedback_there_is() -> None:
    done = run(plan(step("a", prompt(), gate=judged(loops=2))), verdict=NO)
    assert state(done) == ("blocked", "gate_rejected")
    assert done.snap.steps[0].detail == "thin\nmissing: m"
    assert say(done, "loops", loops=2) == "applied"
    assert work(done) == ["a:solo", "a:solo~l2", "a:solo~l3", "a:solo~l4"]
    assert done.snap.steps[0].work[0].feedback == b'{"feedback":"thin","missing":["m"]}'
    assert state(done) == ("blocked", "gate_rejected")


def test_what_is_no_rejected_prompt_gets_no_loops() -> None:
    done = run(plan(step("a", gate=Gate(check=Command(text="look"), max_loops=3))), {"a.gate:l1": [ok(exit_code=1)]})
    assert say(done, "loops", loops=2) == "no rejected step here can loop"
    assert work(done) == ["a:solo"]
    assert grant(done.snap, done.now(), 1) == []


def test_loops_granted_while_other_steps_run_do_not_touch_the_run() -> None:
    done = run(plan(step("a", prompt(), gate=judged())), verdict=NO)
    done.snap.run.state = done.snap.run.state.ACTIVE
    assert [type(event) for event in grant(done.snap, done.now(), 1)] == [ev.LoopsGranted, ev.StepMoved]


def test_an_artifact_that_misses_its_schema_loops_with_the_misses_and_then_fails() -> None:
    specs = plan(
        step(
            "m",
            prompt(),
            map=over("params.items"),
            gate=Gate(judge=judged().judge, max_loops=2),
            schema={"minItems": 9},
        )
    )
    done = run(specs)
    assert (state(done), done.snap.steps[0].loop) == (("failed", "validation_error"), 2)
    text = "the artifact misses the step's schema: value: [\"made by m:"
    assert all(
        (unit.feedback or b"").decode().startswith('{"feedback":' + json.dumps(text)[:-1])
        for unit in done.snap.steps[0].work
    )


def test_a_solo_answer_that_misses_its_schema_is_asked_again_once_and_then_loops() -> None:
    specs = plan(step("a", prompt(), needs=[], schema={"type": "integer"}, gate=judged(loops=2)), step("b", needs=[]))
    done = run(specs, {"a:solo": [ok('"x"'), ok('"y"')], "a:solo~l2": [ok("1")]})
    assert done.snap.run.outcome == "ok"
    assert dispatches(done.events).count((0, 0)) == 2
    text = (
        "unit a:solo failed: validation_error: the reply could not be used: its JSON does not fit the schema: "
        'value: \\"y\\" is not of type \\"integer\\"'
    )
    assert done.snap.steps[0].work[0].feedback == f'{{"feedback":"{text}","missing":[]}}'.encode()
    done = run(specs, {"a:solo": [ok('"x"')] * 2, "a:solo~l2": [ok('"x"')] * 2})
    assert state(done) == ("failed", "validation_error")
    done = run(specs, {"a:solo": [ok("no json")] * 2})
    assert (state(done), done.snap.steps[0].loop) == (("failed", "parse_error"), 1)


def test_a_loop_does_not_begin_in_a_run_that_has_failed() -> None:
    specs = plan(step("a", prompt(), needs=[], gate=judged(loops=2)), step("b", needs=[]))
    left = {"a:solo": [ok("x")], "b:solo": [failed()]}
    done = simulate(specs, by_unit(left, lambda _s, _u: ok(NO)), pick=lambda count: count - 1)
    assert [(s.state, s.reason) for s in done.snap.steps] == [("failed", "stopped"), ("failed", "non_zero_exit")]
    assert work(done) == ["a:solo"]


def test_a_tie_of_judges_is_broken_by_one_more_when_the_run_goes_on() -> None:
    specs = plan(step("a", prompt(), gate=judged(asked=2)))
    done = run(specs, {"a.gate:l1.j1": [ok(NO)]})
    assert state(done) == ("blocked", "judge_unavailable")
    assert done.snap.steps[0].detail == "a.gate:l1.j1: 2 answers give no majority"
    done.take_over()
    done.run()
    assert done.snap.run.outcome == "ok"
    assert [(unit.id, unit.attempt) for unit in done.snap.steps[0].asked] == [
        ("a.gate:l1.j1", 1), ("a.gate:l1.j2", 1), ("a.gate:l1.j3", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("asked", range(1, 6))
@pytest.mark.parametrize("yes", range(6))
@pytest.mark.parametrize("no", range(6))
def test_a_strict_majority_of_those_asked_decides(asked: int, yes: int, no: int) -> None:
    """Those who say neither failed; they count as asked."""
    said = ([ok(YES)] * yes + [ok(NO)] * no)[:asked] + [failed()] * max(0, asked - yes - no)
    answers = {f"a.gate:l1.j{n}": [one] for n, one in enumerate(said, 1)}
    done = run(plan(step("a", gate=judged(asked=asked))), answers)
    yes, no = sum(one.output == YES.encode() for one in said), sum(one.output == NO.encode() for one in said)
    expected = "completed" if 2 * yes > asked else "gate_rejected" if 2 * no > asked else "judge_unavailable"
    assert (done.snap.run.reason or done.snap.run.state) == expected


def test_the_next_run_asks_again_only_the_judge_whose_answer_is_missing_with_a_re_ask_of_its_own() -> None:
    specs = plan(step("a", gate=judged(asked=3)))
    bad = [ok(""), ok(""), ok(""), ok(YES)]
    done = run(specs, {"a.gate:l1.j1": [ok(NO)], "a.gate:l1.j3": bad})
    assert (state(done), done.snap.steps[0].asked[2].asks) == (("blocked", "judge_unavailable"), 1)
    done.take_over()
    assert done.snap.steps[0].asked[2].asks == 0
    done.run()
    assert done.snap.run.outcome == "ok"
    assert [unit.attempt for unit in done.snap.steps[0].asked] == [1, 1, 4]


def test_units_that_wait_for_a_person_end_with_a_run_that_is_abandoned() -> None:
    done = run(plan(step("a", gate=APPROVAL)))
    done.add(*requests.abandon(done.snap, done.now()))
    assert [unit.state for unit in done.snap.steps[0].asked] == [UnitState.NOT_RUN]
    assert say(done, "approve") == "nothing waits for a person here"


def test_a_gate_that_asks_nobody_lets_everything_pass() -> None:
    specs = plan(step("m", prompt(), map=over("params.items"), gate=Gate(max_loops=3, each=True)))
    assert run(specs).snap.run.outcome == "ok"


def test_an_approval_of_another_step_is_not_answered_with_one_that_was_rejected() -> None:
    specs = plan(step("a", needs=[], gate=Gate(check=Command(text="look"))), step("b", needs=[]))
    done = run(specs, {"a.gate:l1": [ok("no", exit_code=1)]})
    assert say(done, "approve", target="b") == "nothing waits for a person here"
    told = "step 'a' was rejected or could not be judged; pass it all the same with --override"
    assert say(done, "approve", target="a") == say(done, "approve") == told
