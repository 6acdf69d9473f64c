"""What a fork takes over: work on an equal input, verdicts of an equal artifact and judge, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decide.forks import Past, fork, taken
from tests.decide.runs import PARAMS, by_unit, dispatches, plans, world

from interlock.decide.reuse import asker_hash, changed_parts, index
from interlock.decide.work import base_id, shared, work_units
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.outcome import Outcome
from interlock.model.plan import (
    Command,
    Engine,
    Gate,
    Judge,
    Plan,
    Project,
    Prompt,
    PythonFunction,
    Script,
    Shell,
    Target,
)
from interlock.model.run import Step, Unit
from interlock.model.states import Reason, StepState, UnitState
from interlock.testing.build import check, failed, judged, ok, over, plan, prompt, step
from interlock.testing.simulate import Simulation, simulate, snapshot

PASS = json.dumps({"complete": True, "missing": [], "feedback": ""})
REJECT = json.dumps({"complete": False, "missing": [], "feedback": "thin"})


def says(text: str = "fine", verdict: str = PASS) -> Any:
    """A world in which all work says `text` and all judges `verdict`."""
    return lambda _step, unit: ok(verdict if unit.kind == "judge" else text)


def refuses(_step: Step, unit: Unit) -> Outcome:
    raise AssertionError(f"{unit.id} was asked")


def changed(specs: Plan, at: int) -> Plan:
    """The plan with another text in one step, where it has one."""
    spec = specs.steps[at % len(specs.steps)]
    target: Target | None = spec.target
    if isinstance(target, Command):
        target = Command(text=f"{target.text} # changed")
    elif isinstance(target, Prompt):
        target = msgspec.structs.replace(target, text=f"{target.text} Well.")
    other = msgspec.structs.replace(spec, target=target)
    return msgspec.structs.replace(specs, steps=tuple(other if one is spec else one for one in specs.steps))


# what decides


@given(specs=plans(), seed=st.integers(0, 10**6), at=st.none() | st.integers(0, 6))
def test_a_unit_is_taken_over_exactly_when_it_was_completed_on_an_equal_input(
    specs: Plan, seed: int, at: int | None
) -> None:
    past = Past(simulate(specs, world(seed, specs), PARAMS))
    completed = {
        (step_.id, base_id(unit.id), past.input_hash(step_.id, unit)): unit
        for step_ in past.snap.steps
        for unit in step_.units
        if unit.kind == "work" and unit.state is UnitState.COMPLETED
    }
    made = fork(past, specs if at is None else changed(specs, at), world(seed + 1, specs))
    here = Past(made)
    for step_ in made.snap.steps:
        for unit in (unit for unit in step_.units if unit.kind == "work"):
            before = completed.get((step_.id, base_id(unit.id), here.input_hash(step_.id, unit)))
            # a round that follows a failure holds what failed here
            if unit.round == 1:
                assert (unit.origin is not None) == (before is not None), unit.id
            if unit.origin is not None:
                assert before is not None
                assert (unit.result, unit.state, unit.attempt) == (before.result, UnitState.COMPLETED, 0)


@given(specs=plans(), seed=st.integers(0, 10**6))
def test_what_is_taken_over_is_never_dispatched_and_no_approval_is_taken_over(specs: Plan, seed: int) -> None:
    past = Past(simulate(specs, world(seed, specs), PARAMS))
    made = fork(past, specs, world(seed + 1, specs))
    asked = {made.snap.steps[at].units[n].id for at, n in dispatches(made.events)}
    assert asked.isdisjoint(taken(made))
    assert all(u.origin is None for s in made.snap.steps for u in s.units if u.kind not in ("work", "gate", "judge"))


@given(specs=plans(), seed=st.integers(0, 10**6))
def test_a_fork_of_a_run_that_went_well_asks_nobody_and_comes_to_the_same(specs: Plan, seed: int) -> None:
    past = Past(simulate(specs, world(seed, specs, troubles=0), PARAMS))
    if past.snap.run.outcome != "ok":
        return
    made = fork(past, specs, refuses)
    assert [s.artifact for s in made.snap.steps] == [s.artifact for s in past.snap.steps]
    assert made.snap.run.outcome == "ok"


# what the hash of an input covers


def hashed(target: Target, kind: Any = "llm", **project: Any) -> str:
    specs = plan(step("a", target, cwd=project.pop("cwd", ".")))
    shell = project.pop("shell", specs.shell)
    place = msgspec.structs.replace(specs.project, **project)
    engine = Engine(name="e", kind=kind, driver="one")
    specs = msgspec.structs.replace(specs, project=place, shell=shell, engines=(engine,))
    return work_units(snapshot(specs), specs.steps[0])[0].input_hash


PLACES: list[dict[str, Any]] = [{"commit": "c" * 40}, {"root": "/elsewhere"}, {"cwd": "sub"}]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: next(iter(place)))
def test_a_call_of_a_model_api_does_not_depend_on_commit_and_directory_and_all_else_does(place: dict[str, Any]) -> None:
    asked = Prompt(text="Do it.", engine="e")
    assert hashed(asked, "llm") == hashed(asked, "llm", **place)
    script = Script(path="s.sh", sha256="sha256:0", content_b64="", interpreter=("sh",))
    function = PythonFunction(module="m", function="f", file="m.py", sha256="sha256:0")
    others: list[tuple[Target, str]] = [
        (asked, "agent"),
        (Command(text="x"), "llm"),
        (Command(argv=("x",)), "llm"),
        (script, "llm"),
        (function, "llm"),
    ]
    for target, kind in others:
        assert hashed(target, kind) != hashed(target, kind, **place), target


def test_the_shell_is_part_of_a_shell_texts_input_and_of_no_other() -> None:
    bash = Shell(name="bash", argv=("/bin/bash", "-c"))
    assert hashed(Command(text="x")) != hashed(Command(text="x"), shell=bash)
    for target in (Command(argv=("x",)), Prompt(text="x", engine="e")):
        assert hashed(target, shell=None) == hashed(target, shell=bash)


def test_a_command_added_to_a_workflow_of_prompts_asks_none_of_them_again() -> None:
    asked = msgspec.structs.replace(plan(step("a", prompt())), shell=None)
    past = Past(simulate(asked, says()))
    made = fork(past, plan(step("a", prompt(), gate=check()), step("b")), says())
    assert taken(made) == ["a:solo"]


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"target": prompt("Other.")}, ["prompt"]),
        ({"target": msgspec.structs.replace(prompt(), temperature=0.5)}, ["target"]),
        ({"target": Command(text="x")}, ["prompt", "target", "engine", "shell", "cwd", "root"]),
        ({"output_schema_json": '{"type":"string"}'}, ["schema"]),
        ({"env": ("g",)}, ["env"]),
        ({"target": prompt(engine="e2")}, ["target", "engine"]),
    ],
)
def test_the_parts_that_changed_are_named(change: dict[str, Any], parts: list[str]) -> None:
    old = plan(step("a", prompt()))
    old = msgspec.structs.replace(old, engines=(*old.engines, Engine(name="e2", kind="llm", driver="two")))
    new = msgspec.structs.replace(old, steps=(msgspec.structs.replace(old.steps[0], **change),))

    def of(specs: Plan, params: dict[str, Any], feedback: bytes | None) -> Any:
        return specs, specs.steps[0], shared(snapshot(specs, params), specs.steps[0]), feedback

    assert changed_parts(of(new, {}, None), of(old, {}, None)) == parts
    assert changed_parts(of(old, {}, None), of(old, {}, None)) == []
    assert changed_parts(of(old, {"p": 1}, b"{}"), of(old, {}, None)) == ["feedback", "params"]


# verdicts


def gated(gate: Gate | None = None, target: Target | None = None) -> Plan:
    return plan(step("a", target or prompt(), gate=gate or judged(asked=3)))


def test_judges_are_not_asked_again_about_an_equal_artifact() -> None:
    made = fork(Past(simulate(gated(), says())), gated(), refuses)
    assert taken(made) == ["a:solo", "a.gate:l1.j1", "a.gate:l1.j2", "a.gate:l1.j3"]


@pytest.mark.parametrize(
    "other",
    [
        gated(Gate(judge=Judge(rubric="Else.", engine="j"))),
        gated(Gate(judge=Judge(rubric="Good.", engine="j", model="m"))),
        gated(Gate(judge=Judge(rubric="Good.", engine="j", clip_chars=9))),
        gated(judged(asked=5)),
        msgspec.structs.replace(gated(judged()), engines=(Engine(name="e", kind="llm", driver="openai"),
                                                          Engine(name="j", kind="agent", driver="openai"))),
    ],
    ids=["rubric", "model", "clip", "count", "engine"],
)  # fmt: skip
def test_another_judge_is_asked(other: Plan) -> None:
    past = Past(simulate(gated(judged()), says()))
    assert taken(fork(past, other, says())) == ["a:solo"]


def test_another_artifact_is_judged_anew() -> None:
    past = Past(simulate(gated(), says()))
    assert taken(fork(past, changed(gated(), 0), says("other"))) == []
    # other work that comes to the same is the same artifact
    assert taken(fork(past, changed(gated(), 0), says())) == ["a.gate:l1.j1", "a.gate:l1.j2", "a.gate:l1.j3"]


def split(*texts: str) -> Any:
    """Judges that answer so, in order."""
    return by_unit({f"a.gate:l1.j{n}": [ok(text), ok(text)] for n, text in enumerate(texts, 1)}, says())


def test_a_tie_that_one_more_judge_broke_stays_broken() -> None:
    old = simulate(gated(judged(asked=2)), split(PASS, REJECT, PASS))
    assert old.snap.run.reason == "judge_unavailable"
    old.take_over()
    assert old.run().run.outcome == "ok"
    made = fork(Past(old), gated(judged(asked=2)), refuses)
    assert made.snap.run.outcome == "ok"
    assert taken(made) == ["a:solo", "a.gate:l1.j1", "a.gate:l1.j2", "a.gate:l1.j3"]
    assert [unit.ordinal for unit in made.snap.steps[0].units] == [0, 1, 2, 3]


def test_a_tie_that_was_never_broken_blocks_the_fork_until_one_more_is_asked() -> None:
    old = simulate(gated(judged(asked=2)), split(PASS, REJECT))
    made = fork(Past(old), gated(judged(asked=2)), says())
    assert (made.snap.run.reason, len(taken(made))) == ("judge_unavailable", 3)
    made.take_over()
    assert made.run().run.outcome == "ok"
    assert [made.snap.steps[at].units[n].id for at, n in dispatches(made.events)] == ["a.gate:l1.j3"]


def test_a_tie_breaker_that_gave_no_answer_is_asked_anew() -> None:
    old = simulate(gated(judged(asked=2)), split(PASS, REJECT, "mumble"))
    old.take_over()
    assert old.run().run.reason == "judge_unavailable"
    made = fork(Past(old), gated(judged(asked=2)), says())
    assert taken(made) == ["a:solo", "a.gate:l1.j1", "a.gate:l1.j2"]
    made.take_over()
    assert made.run().run.outcome == "ok"


def test_a_person_is_asked_again_about_what_a_judge_passed() -> None:
    specs = gated(judged(approval=True))
    old = simulate(specs, says())
    step_ = old.snap.steps[0]
    unit = step_.asked[-1]
    old.add(
        ev.Approved(at=1, step=0, unit=unit.ordinal, verdict="pass", subject=unit.subject or "", by="me", note=""),
        ev.StepMoved(at=1, step=0, state=StepState.GATING),
    )
    made = fork(Past(old), specs, refuses)
    assert (made.snap.run.reason, taken(made)) == ("approval_needed", ["a:solo", "a.gate:l1.j1"])


@pytest.mark.parametrize("silent", [1, 2, 3])
def test_only_a_judge_that_gave_no_answer_is_asked(silent: int) -> None:
    texts = [PASS] * 3
    texts[silent - 1] = "mumble"
    old = simulate(gated(), split(*texts))
    assert old.snap.run.outcome == "ok", "two of three are a majority"
    made = fork(Past(old), gated(), says())
    asked = {made.snap.steps[at].units[n].id for at, n in dispatches(made.events)}
    assert asked == {f"a.gate:l1.j{silent}"}
    assert len(taken(made)) == 3


def test_ties_of_single_items_are_taken_over_item_by_item() -> None:
    specs = plan(step("a", prompt(), map=over("params.items"), gate=judged(asked=2, each=True)))

    def answer(_step: Step, unit: Unit) -> Outcome:
        if unit.kind != "judge":
            return ok(f"made {unit.index}")
        return ok(REJECT if unit.index == 1 and unit.id.endswith(".j2") else PASS)

    old = simulate(specs, answer, PARAMS)
    old.take_over()
    assert old.run().run.outcome == "ok"
    made = fork(Past(old), specs, refuses)
    assert made.snap.run.outcome == "ok"
    judges = [unit for unit in made.snap.steps[0].units if unit.kind == "judge"]
    assert sorted((unit.index or 0, unit.id[-3:]) for unit in judges) == [
        (0, ".j1"), (0, ".j2"), (1, ".j1"), (1, ".j2"), (1, ".j3"), (2, ".j1"), (2, ".j2"),
    ]  # fmt: skip
    assert [unit.ordinal for unit in made.snap.steps[0].units] == list(range(10))


def test_of_an_artifact_that_was_judged_in_two_loops_the_last_verdict_holds() -> None:
    specs = gated(judged(loops=2))
    verdicts = {"a.gate:l1.j1": [ok(REJECT)], "a.gate:l2.j1": [ok(PASS)]}
    old = simulate(specs, by_unit(verdicts, says()))
    assert old.snap.steps[0].loop == 2
    made = fork(Past(old), specs, refuses)
    assert (made.snap.run.outcome, made.snap.steps[0].loop) == ("ok", 1)


@pytest.mark.parametrize(
    ("place", "again"), [({}, False), ({"commit": "c" * 40}, True), ({"root": "/elsewhere"}, True)]
)
def test_a_check_sees_files_and_is_asked_again_in_another_commit_or_directory(
    place: dict[str, Any], *, again: bool
) -> None:
    old = gated(check())
    new = msgspec.structs.replace(old, project=msgspec.structs.replace(old.project, **place))
    made = fork(Past(simulate(old, says())), new, says())
    assert ("a.gate:l1" not in taken(made)) == again


def test_a_check_that_could_not_be_asked_is_no_verdict() -> None:
    old = simulate(gated(check()), by_unit({"a.gate:l1": [ok(exit_code=126)]}, says()))
    assert old.snap.run.reason == "check_unavailable"
    assert taken(fork(Past(old), gated(check()), says())) == ["a:solo"]


def test_a_step_that_has_lost_its_gate_has_no_judge() -> None:
    specs = plan(step("a"))
    assert asker_hash(snapshot(specs), specs.steps[0], "judge") == ""


# what is in no index


def test_a_run_without_a_past_takes_nothing_over() -> None:
    assert taken(simulate(gated(), says())) == []


def test_failed_and_unfinished_work_is_not_in_the_index() -> None:
    specs = plan(step("a", map=over("params.items"), on_error="continue"), step("b"))
    answers = by_unit({}, says())

    def answer(step_: Step, unit: Unit) -> Outcome:
        return failed(Reason.TIMEOUT) if unit.index == 1 else answers(step_, unit)

    past = Past(simulate(specs, answer, PARAMS))
    assert sorted(key[0] for key in past.index().work) == ["a", "a", "b"]
    begun = Simulation(snapshot(specs, PARAMS), answer)
    begun.turn()
    assert len(Past(begun).index().work) == 1


def test_a_result_of_a_module_that_was_accepted_with_changes_is_done_again() -> None:
    function = PythonFunction(module="m", function="f", file="m.py", sha256="sha256:frozen")
    specs = plan(step("a", function))
    old = simulate(specs, lambda _step, _unit: ok("1", is_json=True))
    assert len(Past(old).index().work) == 1
    old.add(ev.ModulesAccepted(at=1, hashes={"m.py": "sha256:other"}))
    assert Past(old).index().work == {}


def test_an_agents_session_goes_with_its_work() -> None:
    old = Past(simulate(gated(), says()))
    unit = old.snap.steps[0].work[0]
    unit.session = "s1"
    (found,) = old.index().work.values()
    assert (found.session, found.reused.result) == ("s1", canon.dumps("fine"))


def test_the_index_names_the_run_it_is_of() -> None:
    assert index(snapshot(gated()), []).run == "run"
    assert isinstance(gated().project, Project)
