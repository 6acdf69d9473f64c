"""What a step's attempts left running outside of their groups ends with the step, and with no other one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.dispatch.shop import marked, runs, until
from tests.driver.conftest import Functions
from tests.driver.family_world import World

from interlock.dispatch.base import Job, Outcome, Request
from interlock.dispatch.processes import lookout
from interlock.dispatch.processes.markers import dispatch_id
from interlock.model.plan import Command

MODULE = """
import os, subprocess, time

def leave(context):
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    keep(f"stray-{context['item']}", child.pid)
    return child.pid

def stay(context):
    leave(context)
    until("go")

def quiet(context):
    return "quiet"

def keep(name, pid):
    with open(name + ".part", "w") as file:
        file.write(str(pid))
    os.rename(name + ".part", name)

def until(name):
    while not os.path.exists(name):
        time.sleep(0.01)
"""
# until it has said so itself it might still be in the group, with which it would end
LEAVE = """
setsid sh -c 'echo $$ > "stray-$0.part"; mv "stray-$0.part" "stray-$0"; exec sleep 600' "$0" &
until test -e "stray-$0"; do sleep 0.01; done
"""
STAY = LEAVE + "until test -e go; do sleep 0.01; done"


class Steps:
    """Steps of commands and functions in one executor of this machine."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self.executor = functions.executor
        self._count = 0

    def command(self, step: int, text: str, name: str, *, key: str = "") -> Request:
        """Start a command which gets `name` as its `$0`."""
        target = Command(argv=("bash", "-euc", text, name))
        return self._start(self._job(step, target, key or f"command:{step}"))

    def call(self, step: int, function: str, name: str) -> Request:
        """Start a function which gets `name` as its item."""
        job = msgspec.structs.replace(self._functions.job(function, key=f"function:{step}"), step=step)
        return self._start(job, name)

    def _job(self, step: int, target: Command, key: str) -> Job:
        run_id, cwd = self._functions.run_id, str(self._functions.folder)
        return Job(key=key, run_id=run_id, step_id=f"s{step}", step=step, target=target, cwd=cwd)

    def _start(self, job: Job, item: str | None = None) -> Request:
        self._count += 1
        [place] = self.executor.capacity(job, 1)
        request = msgspec.structs.replace(
            self._functions.request(job, item, place), dispatch=dispatch_id("holder", job.step, self._count)
        )
        self.executor.start([request])
        return request

    def ends(self, *requests: Request) -> list[Outcome]:
        found = self._functions.outcomes(len(requests))
        return [found[request.dispatch] for request in requests]

    def stray(self, name: str) -> int:
        """Wait for what was left; meanwhile what comes up is seen to."""
        path = self._functions.folder / f"stray-{name}"

        def left() -> bool:
            self._functions.reports += self.executor.wait(0.01)
            return path.exists()

        until(left)
        return int(path.read_text())

    def go(self) -> None:
        (self._functions.folder / "go").touch()


@pytest.fixture
def steps(make_functions: Callable[..., Functions]) -> Iterator[Steps]:
    functions = make_functions(MODULE)
    yield Steps(functions)
    functions.close()
    assert marked(functions.run_id) == []


def test_what_commands_left_ends_with_their_steps_and_what_others_run_goes_on(steps: Steps) -> None:
    ended = [steps.command(0, LEAVE, "a"), steps.command(0, LEAVE, "check", key="check"), steps.command(1, LEAVE, "b")]
    assert {outcome.status for outcome in steps.ends(*ended)} == {"ok"}
    lasting = steps.command(2, STAY, "c")
    left = [steps.stray(name) for name in ("a", "check", "b", "c")]
    assert [*map(runs, left)] == [True, True, True, True], "as long as their steps have not ended"
    steps.executor.tidy([0])
    assert [*map(runs, left)] == [False, False, True, True]
    steps.executor.tidy([1])
    assert [*map(runs, left)] == [False, False, False, True]
    steps.go()
    assert steps.ends(lasting)[0].status == "ok"
    assert runs(left[3])
    steps.executor.tidy([2])
    assert not runs(left[3])


def test_what_functions_left_ends_with_their_steps_and_what_others_run_goes_on(steps: Steps) -> None:
    ended = [steps.call(0, "leave", "a"), steps.call(1, "leave", "b")]
    assert {outcome.status for outcome in steps.ends(*ended)} == {"ok"}
    lasting = steps.call(2, "stay", "c")
    left = [steps.stray(name) for name in "abc"]
    assert [*map(runs, left)] == [True, True, True], "as long as their steps have not ended"
    steps.executor.tidy([0])
    assert [*map(runs, left)] == [False, True, True]
    steps.go()
    assert steps.ends(lasting)[0].status == "ok"
    steps.executor.tidy([1, 2])
    assert [*map(runs, left)] == [False, False, False]
    [outcome] = steps.ends(steps.call(3, "quiet", "d"))
    assert json.loads(outcome.output) == "quiet", "the workers serve on"


def test_steps_that_end_together_are_tidied_together(steps: Steps) -> None:
    ended = [steps.command(0, LEAVE, "a"), steps.call(1, "leave", "b"), steps.command(2, LEAVE, "c")]
    assert {outcome.status for outcome in steps.ends(*ended)} == {"ok"}
    left = [steps.stray(name) for name in "abc"]
    steps.executor.tidy([0, 1, 2])
    assert [*map(runs, left)] == [False, False, False]


def test_what_a_function_left_without_a_mark_ends_with_the_run(
    make_functions: Callable[..., Functions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookout, "EVERY_S", 0.02)
    functions = make_functions(
        "import subprocess\ndef leave(context):\n"
        "    return subprocess.Popen(['sleep', '600'], start_new_session=True, env={}).pid\n"
    )
    pid = json.loads(functions.run("leave")[0].output)
    until(lambda: pid in {known for known, _ in lookout.remembered(lambda _: True)})
    functions.executor.tidy([0])
    assert runs(pid), "it is taken for the worker's, which serves other steps as well"
    functions.executor.close()
    assert not runs(pid)


WHOLE = """
steps:
  - id: leaves
    needs: []
    run: |
      setsid sh -c 'echo $$ > left.part; mv left.part left; exec sleep 600' &
      until test -e left; do sleep 0.01; done
  - { id: calls, needs: [], uses: 'python:work:leave_called' }
  - id: lasts
    needs: []
    run: |
      setsid sh -c 'echo $$ > kept.part; mv kept.part kept; exec sleep 600' &
      until test -e go; do sleep 0.01; done
  - id: next
    needs: [leaves, calls]
    run: |
      running() { case "$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null || true)" in ''|Z*|X*) return 1;; esac; }
      for name in left called; do
        for _ in $(seq 2000); do running "$(cat $name)" || break; sleep 0.01; done
        running "$(cat $name)" && echo "$name runs" || echo "$name is gone"
      done
      until test -e kept; do sleep 0.01; done
      running "$(cat kept)" && echo "kept runs" || echo "kept is gone"
      touch go
"""
CALLED = """
import os, subprocess

def leave_called(context):
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with open("called.part", "w") as file:
        file.write(str(child.pid))
    os.rename("called.part", "called")
"""


def test_in_a_run_what_a_step_left_is_gone_before_the_run_ends_and_what_lasts_is_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(parent=WHOLE)
    (tmp_path / "work.py").write_text(CALLED)
    result: Any = world.run()
    assert result.outcome == "ok"
    assert world.artifact(result.run_id, "next") == "left is gone\ncalled is gone\nkept runs"
    assert not runs(int((tmp_path / "kept").read_text()))
