"""External effects that may have happened, from end to end: probes, persons, crashes."""

from __future__ import annotations

import msgspec
import pytest
from tests.decide.runs import by_unit, dispatches

from interlock.decide import requests
from interlock.decide.reopen import go_on, reopen
from interlock.model import events as ev
from interlock.model.plan import Budget, Command
from interlock.model.states import Reason, UnitState
from interlock.testing.build import aborted, failed, ok, over, plan, step
from interlock.testing.simulate import Simulation, simulate, snapshot

PROBE = Command(text="ask")
EXTERNAL = plan(step("a", effects="external", probe=PROBE), step("b"))
LOST = failed(Reason.TIMEOUT, answered=False)


def states(simulation: Simulation) -> dict[str, str]:
    return {s.id: str(s.state) for s in simulation.snap.steps}


def run_of(simulation: Simulation) -> tuple[str, str | None, str]:
    run = simulation.snap.run
    return run.state, run.reason, run.detail


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
    done = simulate(plan(step("a", effects="external", probe=PROBE, retries=1), step("b")), by_unit(answers))
    assert done.snap.steps[0].artifact == b'"third"'
    assert done.snap.steps[0].work[0].attempt == 3


@pytest.mark.parametrize("retries", [0, 2])
def test_an_effect_that_never_happens_fails_once_its_retries_are_spent(retries: int) -> None:
    specs = plan(step("a", effects="external", probe=PROBE, retries=retries), step("b"))
    done = simulate(specs, by_unit({}, lambda _s, u: LOST if u.kind == "work" else ok(exit_code=1)))
    assert run_of(done) == ("failed", "timeout", "step 'a': unit a:solo failed: timeout")
    assert done.snap.steps[0].work[0].attempt == 1 + retries
    assert go_on(done.snap, done.now()) == []


def test_an_effect_that_a_crash_kept_from_happening_costs_no_retry() -> None:
    done = simulate(EXTERNAL, by_unit({"a:solo": [aborted(), aborted(), ok("third")]}, lambda _s, _u: ok(exit_code=1)))
    assert done.snap.steps[0].work[0].attempt == 3
    assert done.snap.steps[0].work[0].retries == 0


def test_a_probe_without_an_answer_blocks_and_the_next_run_asks_again() -> None:
    done = simulate(
        EXTERNAL, by_unit({"a:solo": [LOST], "a.probe:solo~r1:a1": [ok("db down", exit_code=3), ok("done")]})
    )
    assert run_of(done) == (
        "blocked", "probe_unavailable",
        "step 'a': it is not known whether these took effect: a:solo; the probe gave no answer: exit code 3, where 0 says done and 1 not done: db down",
    )  # fmt: skip
    done.add(*go_on(done.snap, done.now()))
    assert done.run().steps[0].artifact == b'"done"'


def test_a_probe_whose_answer_misses_the_schema_fails_the_unit() -> None:
    specs = plan(step("a", effects="external", probe=PROBE, schema={"type": "integer"}))
    done = simulate(specs, by_unit({"a:solo": [LOST], "a.probe:solo~r1:a1": [ok("text")]}))
    assert run_of(done)[:2] == ("failed", "parse_error")
    said = "step 'a': unit a:solo failed: parse_error: the probe says that it was done, and its output is no result: "
    assert run_of(done)[2].startswith(said), "what the lost attempt left is no reason"


@pytest.mark.parametrize("reason", [Reason.PARSE_ERROR, Reason.VALIDATION_ERROR, Reason.OUTPUT_TOO_LARGE])
def test_an_effect_whose_answer_is_of_no_use_took_place_and_is_not_tried_again(reason: Reason) -> None:
    specs = plan(step("a", effects="external", retries=5), step("b"))
    done = simulate(specs, by_unit({"a:solo": [failed(reason)]}))
    assert run_of(done) == ("failed", reason, f"step 'a': unit a:solo failed: {reason}")
    assert done.snap.steps[0].work[0].attempt == 1
    assert go_on(done.snap, done.now()) == [], "the next run repeats it"
    internal = simulate(plan(step("a", retries=5)), by_unit({"a:solo": [failed(Reason.PARSE_ERROR)]}))
    assert internal.snap.run.outcome == "ok"


def test_text_where_json_was_wanted_does_not_repeat_an_effect() -> None:
    specs = plan(step("a", effects="external", retries=5, schema={"type": "integer"}))
    done = simulate(specs, by_unit({"a:solo": [ok("receipt")]}))
    assert run_of(done)[:2] == ("failed", "parse_error")
    assert done.snap.steps[0].work[0].attempt == 1


def test_a_probe_that_says_done_with_an_answer_of_no_use_is_no_reason_to_repeat_the_effect() -> None:
    specs = plan(step("a", effects="external", probe=PROBE, retries=5, schema={"type": "integer"}))
    done = simulate(specs, by_unit({"a:solo": [LOST], "a.probe:solo~r1:a1": [ok("text")]}))
    assert run_of(done)[:2] == ("failed", "parse_error")
    assert go_on(done.snap, done.now()) == [], "the next run repeats it"


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
        ({"unit": "z:solo", "done": True}, "no unit 'z:solo' in this run; unknown is what became of a:solo"),
        ({"unit": "b:solo", "done": True}, "no unit 'b:solo' in this run; unknown is what became of a:solo"),
        (
            {"unit": "a:solo", "done": True, "result": "x"},
            'the result misses the step\'s schema: value: "x" is not of type "integer"; give one that fits with --result JSON',
        ),
        (
            {"unit": "a:solo", "done": True},
            'the result misses the step\'s schema: value: null is not of type "integer"; give one that fits with --result JSON',
        ),
    ],
)
def test_a_wrong_answer_is_refused_with_the_reason(payload: dict[str, object], outcome: str) -> None:
    done = blocked()
    assert requests.answer(done.snap, "resolve", payload, done.now()) == requests.Answer((), outcome)


def test_of_many_unknown_units_some_are_named_to_who_names_none_of_them() -> None:
    unsure = msgspec.structs.replace(failed(), answered=False)
    specs = plan(step("m", map=over("params.items"), effects="external"))
    done = simulate(specs, lambda _s, _u: unsure, {"items": [1, 2, 3, 4, 5]})
    answer = requests.answer(done.snap, "resolve", {"unit": "m", "done": True}, done.now())
    first = ", ".join(unit.id for unit in done.snap.steps[0].work[:3])
    assert answer.outcome == f"no unit 'm' in this run; unknown is what became of {first} and 2 more"


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


def test_an_unknown_request_is_refused() -> None:
    done = simulate(plan(step("a")), lambda _s, _u: ok())
    assert (
        requests.answer(done.snap, "dance", {}, done.now()).outcome == "this version does not know the request 'dance'"
    )


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ({"max_units": 6.0}, None),
        ({"max_units": 5.0}, "max_units is 5 already; 5 would not raise it"),
        ({"max_duration_ms": 1_000.0}, "max_duration is 60s already; 1s would not raise it"),
        ({"max_units": 6.0, "max_tokens": 12_345_678.0}, "the run has no max_tokens, so there is nothing to raise"),
    ],
)
def test_a_ceiling_is_only_ever_raised(asked: dict[str, float], refused: str | None) -> None:
    budget = Budget(max_units=5, max_duration_ms=60_000)
    done = simulate(plan(step("a"), budget=budget), lambda _s, _u: ok())
    given = requests.answer(done.snap, "raise", asked, done.now())
    if refused:
        assert given == requests.Answer((), refused)
    else:
        assert given.events == (ev.BudgetRaised(at=done.at, name="max_units", value=6),)
