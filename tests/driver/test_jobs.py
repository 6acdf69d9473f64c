from __future__ import annotations

import base64
from pathlib import Path

import msgspec
import pytest
from tests.driver.desk import real_plan

from interlock.driver.jobs import JobBook, ModuleChangedError, module_hash
from interlock.errors import DispatchRefusedError
from interlock.model import canon
from interlock.model.outcome import Outcome
from interlock.model.plan import Command, Engine, Gate, Judge, Param, Prompt, PythonFunction, Script
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Step, Unit
from interlock.model.states import Reason
from interlock.testing.build import check, failed, ok, over, step
from interlock.testing.simulate import Simulation, snapshot


class Book:
    """A run in the middle, and what each of its units would be asked."""

    def __init__(self, root: Path, *steps: PlanStep) -> None:
        self.simulation = Simulation(snapshot(real_plan(root, *steps), {"items": ["a", {"b": 1}], "p": 1}), self.answer)
        self.jobs = JobBook(self.simulation.snap)
        self.asked: dict[str, tuple[object, ...]] = {}

    def answer(self, step_: Step, unit: Unit) -> Outcome:
        job = self.jobs.job(step_, unit)
        request = self.jobs.request(job, step_, unit, unit.attempt, unit.dispatch or "", None)
        self.asked[unit.id] = (
            job.key, job.target, job.params_json, job.inputs_json, job.artifact_json, job.accepts_any_exit,
            request.item_json, request.index, request.idempotency_key,
        )  # fmt: skip
        if unit.kind == "work" and step_.id == "pay" and unit.attempt == 1:
            return failed(Reason.TIMEOUT, answered=False)
        return ok(f"{step_.id} done")


def test_a_request_carries_all_that_the_work_may_see(tmp_path: Path) -> None:
    book = Book(
        tmp_path,
        step("one"),
        step("m", "work", map=over("params.items"), inputs=["steps.one.output"], gate=check("look", each=True)),
        step("pay", effects="external", probe=Command(text="ask"), gate=check("judge")),
    )
    book.simulation.run()
    params = b'{"items":["a",{"b":1}],"p":1}'
    inputs = b'{"steps.one.output":"one done"}'
    a, b = canon.item_digest(b'"a"'), canon.item_digest(b'{"b":1}')
    work, look = Command(text="work"), Command(text="look")
    asked = book.asked
    assert asked[f"m:{a}"][:8] == ("m/work/r1/l1", work, params, inputs, None, False, b'"a"', 0)
    assert asked[f"m:{b}"][:8] == ("m/work/r1/l1", work, params, inputs, None, False, b'{"b":1}', 1)
    assert asked[f"m.gate:{b}:l1"][:8] == ("m/gate/r1/l1/3", look, params, inputs, b'"m done"', True, b'{"b":1}', 1)
    assert asked["pay.gate:l1"][4] == b'"pay done"'
    assert asked["pay.probe:solo~r1:a1"][1] == Command(text="ask")
    assert asked["pay.probe:solo~r1:a1"][8] == asked["pay:solo"][8] != asked["one:solo"][8]


def module(root: Path) -> PlanStep:
    file = root / "mod.py"
    file.write_text("x = 1\n", encoding="utf-8")
    return step("f", PythonFunction(module="mod", function="g", file=str(file), sha256=module_hash(file)), gate=check())


def first(book: Book) -> None:
    book.simulation.run()


def test_a_module_that_changed_or_went_away_is_not_called(tmp_path: Path) -> None:
    target = module(tmp_path)
    (tmp_path / "mod.py").write_text("x = 2\n", encoding="utf-8")
    with pytest.raises(ModuleChangedError, match=r"module mod \(.*mod.py\) changed since the run began"):
        first(Book(tmp_path, target))
    (tmp_path / "mod.py").unlink()
    with pytest.raises(ModuleChangedError, match=r"cannot be read: No such file or directory"):
        first(Book(tmp_path, target))


def test_a_change_that_was_accepted_is_called(tmp_path: Path) -> None:
    book = Book(tmp_path, module(tmp_path))
    (tmp_path / "mod.py").write_text("x = 2\n", encoding="utf-8")
    book.simulation.snap.accepted[str(tmp_path / "mod.py")] = module_hash(tmp_path / "mod.py")
    first(book)
    assert book.simulation.snap.run.outcome == "ok"


def test_a_module_that_changes_before_the_gate_does_not_hold_the_gate_up(tmp_path: Path) -> None:
    book = Book(tmp_path, module(tmp_path))
    true_answer = book.answer

    def answer(step_: Step, unit: Unit) -> Outcome:
        outcome = true_answer(step_, unit)
        (tmp_path / "mod.py").write_text("x = 3\n", encoding="utf-8")
        return outcome

    Simulation(book.simulation.snap, answer).run()
    assert book.simulation.snap.run.outcome == "ok"


def test_another_directory_under_the_same_name_is_a_notice_and_a_moved_one_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".interlock").mkdir(parents=True)
    (home / ".interlock" / "id").write_text("p\n", encoding="ascii")
    specs = real_plan(home, step("a"))
    stranger = msgspec.structs.replace(specs, project=msgspec.structs.replace(specs.project, inode=1))
    simulation = Simulation(snapshot(stranger), lambda _s, _u: ok())
    jobs = JobBook(simulation.snap)
    simulation.turn()
    jobs.job(simulation.snap.steps[0], simulation.snap.steps[0].work[0])
    assert jobs.take_notices() == [f"{home} is another directory of the same name (device or inode changed)"]
    assert jobs.take_notices() == []
    (home / ".interlock" / "id").write_text("q\n", encoding="ascii")
    with pytest.raises(
        DispatchRefusedError, match=r"another directory of the name .*home: the project's id is not the"
    ):
        JobBook(simulation.snap).job(simulation.snap.steps[0], simulation.snap.steps[0].work[0])
    home.rename(tmp_path / "moved")
    (tmp_path / "home").symlink_to(tmp_path / "moved")
    with pytest.raises(DispatchRefusedError, match=r"was frozen in .*home, which is gone or leads elsewhere now"):
        JobBook(simulation.snap).job(simulation.snap.steps[0], simulation.snap.steps[0].work[0])


def test_an_engine_and_a_judge_are_not_told_what_params_hold_that_look_like_secrets(tmp_path: Path) -> None:
    asks = step("p", Prompt(text="do", engine="llm"), inputs=["params.token"], map=over("params.token"))
    asks = msgspec.structs.replace(asks, gate=Gate(judge=Judge(rubric="good?", engine="llm"), each=True))
    plan = real_plan(tmp_path, asks)
    plan = msgspec.structs.replace(
        plan,
        params=(Param(name="token", secret=True),),
        engines=(Engine(name="llm", kind="llm", driver="openai", model="m"),),
    )
    prompts: list[str] = []
    simulation = Simulation(snapshot(plan, {"token": ["first-secret", "second-secret"]}), lambda _s, _u: ok())
    jobs = JobBook(simulation.snap)

    def answer(step_: Step, unit: Unit) -> Outcome:
        prompts.append(jobs.request(jobs.job(step_, unit), step_, unit, 1, "", None).prompt or "")
        return ok('{"complete": true}' if unit.kind == "judge" else "done")

    Simulation(simulation.snap, answer).run()
    assert [text.count("-secret") for text in prompts] == [0, 0, 0, 0]
    assert [text.count("[redacted:token]") for text in prompts] == [5, 5, 1, 1]


def test_a_script_is_sent_with_its_bytes(tmp_path: Path) -> None:
    script = Script(path="x.sh", sha256="sha256:0", content_b64=base64.b64encode(b"true").decode(), interpreter=("sh",))
    book = Book(tmp_path, step("s", script))
    first(book)
    assert book.asked["s:solo"][1] == script
