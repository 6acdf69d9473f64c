"""Child workflows as runs below their parent: driven, held up, stopped and gone on with in one loop, with real commands."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.driver.params import ParamsInput
from interlock.driver.result import Result
from interlock.errors import UsageError
from interlock.model import events as ev
from interlock.model.run import Snapshot
from interlock.store.base import RunRow

PARENT = "parent.md"
PATIENCE_S = 60.0


class World:
    """A project with workflow files, and the App on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".interlock").mkdir(mode=0o700)
        self.app = interlock.open(folder)

    def write(self, **workflows: str) -> None:
        for name, text in workflows.items():
            (self.folder / f"{name}.md").write_text(f"---\n{text}\n---\n", encoding="utf-8")

    def run(self, **options: Any) -> Result:
        return self.app.run_file(self.folder / PARENT, **options)

    def children(self, run_id: str) -> list[RunRow]:
        return self.app.store.children(run_id)

    def states(self, run_id: str) -> dict[str, str]:
        return {step.id: step.state for step in self.app.store.steps(run_id)}

    def artifact(self, run_id: str, step: str) -> Any:
        index = [row.id for row in self.app.store.steps(run_id)].index(step)
        return json.loads(self.app.store.artifact(run_id, index) or b"null")

    def lines(self, name: str = "said") -> list[str]:
        path = self.folder / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


ONE = """
steps:
  - { id: first, run: [echo, hello] }
  - { id: below, uses: ./child.md, with: { word: steps.first.output } }
  - { id: last, inputs: [steps.below.output], run: 'jq -r ".inputs[]" "$INTERLOCK_CONTEXT"' }
"""
SAY = """
params: { word: { type: string, required: true }, mark: { type: string, default: "!" } }
steps:
  - { id: say, run: 'echo "$INTERLOCK_PARAM_WORD$INTERLOCK_PARAM_MARK"' }
  - { id: again, inputs: [steps.say.output], run: 'jq -r ".inputs[]" "$INTERLOCK_CONTEXT"' }
"""
MAP = """
params: { names: { type: array, default: [a, b, c] } }
steps:
  - id: each
    on_error: ON_ERROR
    map: { over: params.names, concurrency: 2 }
    uses: ./child.md
    with: { name: item }
"""


def test_a_child_is_a_run_of_its_own_and_its_result_is_that_of_its_last_step(world: World) -> None:
    world.write(parent=ONE, child=SAY)
    result = world.run()
    assert (result.state, result.exit_code) == ("completed", 0)
    assert world.artifact(result.run_id, "below") == world.artifact(result.run_id, "last") == "hello!"
    (child,) = world.children(result.run_id)
    assert (child.state, child.outcome, child.workflow) == ("completed", "ok", "child.md")
    assert (child.parent, child.parent_unit, child.root) == (result.run_id, "below:solo", result.run_id)
    assert json.loads(child.params_json) == {"word": "hello", "mark": "!"}
    (attempt,) = world.app.store.attempts(result.run_id, 1, 0)
    assert (attempt.state, attempt.process) == ("completed", None)


def test_a_map_has_a_child_for_each_item(world: World) -> None:
    child = "params: { name: {} }\nsteps:\n  - { id: s, run: 'echo \"<$INTERLOCK_PARAM_NAME>\"' }"
    world.write(parent=MAP.replace("ON_ERROR", "fail"), child=child)
    result = world.run()
    assert world.artifact(result.run_id, "each") == ["<a>", "<b>", "<c>"]
    assert len(world.children(result.run_id)) == 3
    spent = world.app.store.spent(result.run_id)
    assert spent.units == 3, "a child is no dispatch itself, and what it dispatches counts once"


def test_children_may_have_children(world: World) -> None:
    middle = "steps:\n  - { id: m, uses: ./child.md, with: { word: deep } }"
    world.write(parent="steps:\n  - { id: top, uses: ./middle.md }", middle=middle, child=SAY)
    result = world.run()
    assert world.artifact(result.run_id, "top") == "deep!"
    (middle_run,) = world.children(result.run_id)
    (lowest,) = world.children(middle_run.id)
    assert (lowest.parent, lowest.root) == (middle_run.id, result.run_id)


def test_a_param_that_does_not_fit_fails_the_step_before_anything_starts(world: World) -> None:
    child = "params: { word: { type: integer, required: true } }\nsteps:\n  - { id: s, run: 'true' }"
    world.write(parent=ONE, child=child)
    result = world.run()
    assert (result.state, result.reason) == ("failed", "dispatch_error")
    assert 'param \'word\' of ./child.md: value: "hello" is not of type "integer"' in result.detail
    assert world.children(result.run_id) == []


FLAKY = """
params: { name: {} }
steps:
  - { id: once, run: 'echo "once $INTERLOCK_PARAM_NAME" >> said' }
  - { id: flaky, run: 'echo "try $INTERLOCK_PARAM_NAME" >> said; test -e "mended-$INTERLOCK_PARAM_NAME"' }
  - { id: end, run: 'echo "ok $INTERLOCK_PARAM_NAME"' }
"""


def mend(world: World, *names: str) -> None:
    for name in names:
        (world.folder / f"mended-{name}").touch()


def test_a_child_that_fails_fails_its_unit_and_the_others_go_on(world: World) -> None:
    world.write(parent=MAP.replace("ON_ERROR", "continue"), child=FLAKY)
    mend(world, "a", "c")
    result = world.run()
    assert (result.state, result.outcome, result.exit_code) == ("completed", "degraded", 6)
    assert world.artifact(result.run_id, "each") == ["ok a", None, "ok c"]
    (failed,) = [unit for unit in world.app.store.units(result.run_id) if unit.state == "failed"]
    child = next(row for row in world.children(result.run_id) if row.state == "failed")
    assert (failed.reason, child.parent_unit) == ("child_failed", failed.id)
    assert failed.error == f"run {child.id}: step 'flaky': unit flaky:solo failed: non_zero_exit: exit code 1"


def test_resume_goes_on_with_the_child_that_failed_and_repeats_nothing_in_it(world: World) -> None:
    world.write(parent=MAP.replace("ON_ERROR", "fail").replace("[a, b, c]", "[a]"), child=FLAKY)
    first = world.run()
    assert (first.state, first.reason) == ("failed", "child_failed")
    mend(world, "a")
    result = world.app.resume(first.run_id)
    assert result.state == "completed"
    assert world.artifact(first.run_id, "each") == ["ok a"]
    assert world.lines() == ["once a", "try a", "try a"]
    assert len(world.children(first.run_id)) == 1


def test_a_retry_reopens_the_failed_child(world: World) -> None:
    retry = "retry: { max: 2, on: [child_failed], backoff: { initial: 1ms } }"
    parent = f"steps:\n  - {{ id: below, uses: ./child.md, {retry} }}"
    child = "steps:\n  - { id: once, run: 'echo once >> said' }\n  - { id: f, run: 'echo try >> said; test $(grep -c try said) = 3' }"
    world.write(parent=parent, child=child)
    result = world.run()
    assert result.state == "completed"
    assert world.lines() == ["once", "try", "try", "try"]
    assert [attempt.state for attempt in world.app.store.attempts(result.run_id, 0, 0)] == [
        "failed",
        "failed",
        "completed",
    ]
    assert len(world.children(result.run_id)) == 1


ASK = """
params: { name: { type: string, default: me } }
steps:
  - { id: make, run: 'echo "made $INTERLOCK_PARAM_NAME" >> said; echo done' }
  - { id: ask, run: [echo, asked], gate: { approval: true } }
"""


def test_a_child_that_waits_for_a_person_blocks_its_parent_until_it_is_answered_there(world: World) -> None:
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }\n  - { id: after, run: [echo, x] }", child=ASK)
    first = world.run()
    assert (first.state, first.reason, first.exit_code) == ("blocked", "approval_needed", 4)
    assert world.states(first.run_id) == {"below": "blocked", "after": "pending"}
    (child,) = world.children(first.run_id)
    assert first.detail == f"step 'below': run {child.id}: step 'ask': a person has to approve its artifact"
    still = world.app.run_id(first.run_id)
    assert (still.state, still.reason) == ("blocked", "approval_needed")
    world.app.approve(child.id, "ask")
    assert world.app.store.run(first.run_id).state == "active"
    result = world.app.run_id(first.run_id)
    assert (result.state, world.artifact(first.run_id, "below")) == ("completed", "asked")
    assert world.lines() == ["made me"]
    (attempt,) = world.app.store.attempts(first.run_id, 0, 0)
    assert (attempt.number, attempt.state) == (1, "completed")


def test_a_rejected_child_fails_its_parent(world: World) -> None:
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }", child=ASK)
    first = world.run()
    (child,) = world.children(first.run_id)
    world.app.reject(child.id, "ask", note="no")
    result = world.app.run_id(first.run_id)
    assert (result.state, result.reason) == ("failed", "child_failed")


def test_children_that_wait_take_no_place_from_others(world: World) -> None:
    world.write(parent=MAP.replace("ON_ERROR", "fail").replace("concurrency: 2", "concurrency: 1"), child=ASK)
    first = world.run()
    assert first.state == "blocked"
    assert sorted(world.lines()) == ["made a", "made b", "made c"]
    for child in world.children(first.run_id):
        world.app.approve(child.id)
    assert world.app.run_id(first.run_id).state == "completed"


@pytest.mark.parametrize("verb", ["run_id", "resume", "abandon"])
def test_a_child_is_not_driven_by_itself(world: World, verb: str) -> None:
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }", child=ASK)
    first = world.run()
    (child,) = world.children(first.run_id)
    with pytest.raises(UsageError) as caught:
        getattr(world.app, verb)(child.id)
    assert str(caught.value) == f"run {child.id} is a unit of run {first.run_id} and goes on with it"
    assert caught.value.hint == f"go on with the whole: interlock run {first.run_id}"


def test_nothing_new_starts_in_a_child_once_its_parent_has_failed(world: World) -> None:
    parent = "steps:\n  - { id: below, needs: [], uses: ./child.md }\n  - { id: bad, needs: [], run: 'until test -e said; do sleep 0.01; done; exit 3' }"
    child = "steps:\n  - { id: slow, run: 'echo slow >> said; sleep 0.5' }\n  - { id: next, run: 'echo next >> said' }"
    world.write(parent=parent, child=child)
    first = world.run()
    assert (first.state, first.reason) == ("failed", "non_zero_exit")
    assert world.lines() == ["slow"], "what ran has ended, and nothing followed"
    (row,) = world.children(first.run_id)
    assert (row.state, row.detail) == ("failed", "stopped with the run above")
    second = world.app.resume(first.run_id)
    assert world.lines() == ["slow", "next"], "the child went on, its finished step was not repeated"
    assert second.state == "failed"


def test_a_childs_time_ends_it_and_what_runs_in_it(world: World) -> None:
    child = "steps:\n  - { id: hang, run: 'echo $$ >> said; sleep 60 & echo $! >> said; wait' }\n  - { id: no, run: 'echo no >> said' }"
    world.write(parent="steps:\n  - { id: below, uses: ./child.md, timeout: 1s }", child=child)
    result = world.run()
    assert (result.state, result.reason) == ("failed", "timeout")
    (row,) = world.children(result.run_id)
    assert (row.state, row.reason) == ("failed", "timeout")
    assert not [pid for pid in world.lines() if Path("/proc", pid).exists()]


@pytest.mark.parametrize(("mine", "its"), [("budget: { max_units: 2 }", ""), ("", "budget: { max_units: 2 }")])
def test_the_tighter_of_both_budgets_holds(world: World, mine: str, its: str) -> None:
    steps = "\n".join(f"  - {{ id: s{n}, run: 'echo {n} >> said' }}" for n in range(4))
    world.write(parent=f"{mine}\nsteps:\n  - {{ id: below, uses: ./child.md }}", child=f"{its}\nsteps:\n{steps}")
    first = world.run()
    assert (first.state, first.reason) == ("failed", "budget_exceeded" if mine else "child_failed")
    assert world.lines() == ["0", "1"]
    assert "max_units of 2 is used up (2)" in first.detail
    if mine:
        result = world.app.resume(first.run_id, raises={"max_units": 9})
        assert (result.state, world.lines()) == ("completed", ["0", "1", "2", "3"])


def test_the_runs_concurrency_holds_for_all_children_together(world: World) -> None:
    (world.folder / "interlock.toml").write_text("[run]\nmax_concurrency = 1\n", encoding="utf-8")
    child = """params: { name: {} }
steps:
  - { id: a, needs: [], run: 'mkdir busy && sleep 0.05 && rmdir busy' }
  - { id: b, needs: [], run: 'mkdir busy && sleep 0.05 && rmdir busy' }"""
    world.write(parent=MAP.replace("ON_ERROR", "fail"), child=child)
    world.app = interlock.open(world.folder)
    assert world.run().state == "completed"


def test_a_secret_of_the_parent_is_hidden_in_its_child(world: World) -> None:
    parent = "params: { api_token: { type: string } }\nsteps:\n  - { id: below, uses: ./child.md, with: { value: params.api_token } }"
    child = (
        "params: { value: {} }\nsteps:\n  - { id: s, run: 'echo \"it is $INTERLOCK_PARAM_VALUE\" | tee /dev/stderr' }"
    )
    world.write(parent=parent, child=child)
    result = world.run(params=ParamsInput(values={"api_token": "hush-hush-hush"}))
    (row,) = world.children(result.run_id)
    assert world.artifact(row.id, "s") == world.artifact(result.run_id, "below") == "it is [redacted:api_token]"
    log = (world.app.project.logs / f"{result.run_id}.log").read_bytes()
    assert b"hush" not in log
    assert b"[redacted:api_token]" in log
    assert not (world.app.project.logs / f"{row.id}.log").exists()


def test_to_abandon_a_run_ends_its_children_and_resume_goes_on_with_them(world: World) -> None:
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }", child=ASK)
    first = world.run()
    (child,) = world.children(first.run_id)
    assert world.app.abandon(first.run_id).state == "abandoned"
    assert world.app.store.run(child.id).state == "abandoned"
    second = world.app.resume(first.run_id)
    assert (second.state, second.reason) == ("blocked", "approval_needed")
    assert world.lines() == ["made me"]
    assert [row.id for row in world.children(first.run_id)] == [child.id]


def test_an_interrupt_ends_what_runs_in_children_and_the_next_driver_goes_on(world: World) -> None:
    child = "steps:\n  - { id: once, run: 'echo once >> said' }\n  - { id: long, run: 'echo long >> said; test -e go || sleep 60' }"
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }", child=child)
    driver = drive_elsewhere(world)
    until(lambda: world.lines() == ["once", "long"])
    driver.send_signal(signal.SIGINT)
    assert driver.wait(PATIENCE_S) == 130
    (run,) = world.app.store.runs()
    (row,) = world.children(run.id)
    assert (run.state, run.reason, row.state, row.reason) == ("active", "interrupted", "active", "interrupted")
    (world.folder / "go").touch()
    assert world.app.run_id(run.id).state == "completed"
    assert world.lines() == ["once", "long", "long"]
    assert [attempt.number for attempt in world.app.store.attempts(run.id, 0, 0)] == [1]


def test_a_driver_that_dies_leaves_children_that_the_next_goes_on_with(world: World) -> None:
    child = "steps:\n  - { id: once, run: 'echo once >> said' }\n  - { id: long, run: 'echo long >> said; test -e go || sleep 60' }"
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }", child=child)
    driver = drive_elsewhere(world)
    until(lambda: world.lines() == ["once", "long"])
    driver.kill()
    driver.wait(PATIENCE_S)
    (world.folder / "go").touch()
    (run,) = world.app.store.runs()
    assert world.app.run_id(run.id).state == "completed"
    assert world.lines() == ["once", "long", "long"]
    (row,) = world.children(run.id)
    assert [attempt.state for attempt in world.app.store.attempts(row.id, 1, 0)] == ["lost", "completed"]
    assert [attempt.state for attempt in world.app.store.attempts(run.id, 0, 0)] == ["completed"]


def test_a_live_driver_takes_answers_for_its_children(world: World) -> None:
    parent = "steps:\n  - { id: below, needs: [], uses: ./child.md }\n  - { id: busy, needs: [], run: 'until test -e go; do sleep 0.02; done' }"
    world.write(parent=parent, child=ASK + "  - { id: end, run: 'touch go; echo end' }\n")
    driver = drive_elsewhere(world)
    until(lambda: [row.state for run in world.app.store.runs() for row in world.children(run.id)] == ["blocked"])
    (run,) = world.app.store.runs()
    world.app.approve(world.children(run.id)[0].id)
    assert driver.wait(PATIENCE_S) == 0
    assert world.artifact(run.id, "below") == "end"


def test_gc_removes_children_with_their_parent(world: World) -> None:
    world.write(parent=ONE, child=SAY)
    result = world.run()
    report = world.app.gc(older_than_ms=0)
    assert report.runs == (result.run_id,)
    assert world.app.store.runs(children=True) == []


def test_what_happens_is_told_in_order_with_the_run_that_it_happened_in(world: World) -> None:
    world.write(parent=ONE, child=SAY)
    told: list[tuple[str, str]] = []

    def observe(events: Any, snap: Snapshot) -> None:
        moved = [event for event in events if isinstance(event, ev.StepStarted | ev.StepMoved)]
        told.extend((snap.steps[event.step].id, type(event).__name__) for event in moved)

    world.run(on_event=observe)
    assert told == [
        (step, what)
        for step, what in [
            ("first", "StepStarted"),
            ("first", "StepMoved"),
            ("below", "StepStarted"),
            ("say", "StepStarted"),
            ("say", "StepMoved"),
            ("again", "StepStarted"),
            ("again", "StepMoved"),
            ("below", "StepMoved"),
            ("last", "StepStarted"),
            ("last", "StepMoved"),
        ]
    ]


def drive_elsewhere(world: World) -> subprocess.Popen[bytes]:
    """Drive the parent in a process of its own."""
    source = Path(__file__).parents[2] / "src"
    return subprocess.Popen(
        [sys.executable, "-m", "interlock", "run", PARENT],
        cwd=world.folder,
        env={**os.environ, "PYTHONPATH": str(source)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def until(true: Callable[[], bool]) -> None:
    """Wait until it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not _quietly(true):
        assert time.monotonic() < deadline, "it never became true"
        threading.Event().wait(0.02)


def _quietly(true: Callable[[], bool]) -> bool:
    try:
        return true()
    except (sqlite3.Error, interlock.InterlockError):
        # the journal is just being made
        return False
