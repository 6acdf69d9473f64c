"""Forks with real drivers: what the old run did on the same input is taken over, and only that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.driver.forks import World, census, output
from tests.store.rebuild import compare

import interlock
from interlock.driver.forking import ForkOrder
from interlock.driver.params import ParamsInput
from interlock.errors import UsageError


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


THREE = """\
    ---
    params: { who: { type: string, default: ann } }
    steps:
      - { id: one }
      - { id: two, inputs: [steps.one.output] }
      - { id: three, inputs: [steps.two.output] }
    ---
    ## one
    first
    ## two
    second
    ## three
    third
    """


def test_a_prompt_mended_in_the_middle_is_paid_for_from_there_only(world: World) -> None:
    path = world.write(THREE)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        assert world.calls() == ["first", "second", "third"]
        path.write_text(path.read_text(encoding="utf-8").replace("second", "mended"), encoding="utf-8")
        new = app.fork(ForkOrder(run=old))
        assert new.exit_code == 0
        assert world.calls() == ["mended", "third"]
        assert census(app, new.run_id) == [(1, 1), (1, 0), (1, 0)]
        unit = next(app.store.units(new.run_id))
        assert unit.reused is not None
        assert (unit.reused.run, unit.reused.unit, unit.reused.attempt) == (old, "one:solo", 1)
        assert (app.store.attempts(new.run_id, 0, 0), unit.attempt) == ([], 0)
        assert app.store.spent(new.run_id).units == 2
        assert app.store.run(new.run_id).forked_from == old
        compare(app.store, new.run_id)


def test_nothing_is_sent_where_nothing_changed_and_artifacts_are_the_same(world: World) -> None:
    path = world.write(THREE)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        world.calls()
        new = app.fork(ForkOrder(run=old)).run_id
        again = app.fork(ForkOrder(run=new)).run_id
        assert world.calls() == []
        assert [output(app, old, n) for n in range(3)] == [output(app, again, n) for n in range(3)]
        origins = {unit.reused.run for unit in app.store.units(again) if unit.reused}
        assert origins == {old}, "a fork of a fork names where the work was really done"


def test_a_changed_parameter_runs_what_sees_it_again(world: World) -> None:
    path = world.write(THREE)
    with interlock.open(world.root) as app:
        old = app.run_file(path, ParamsInput(values={"who": "bob"})).run_id
        world.calls()
        kept = app.fork(ForkOrder(run=old)).run_id
        assert world.calls() == []
        assert b"bob" in app.store.run(kept).params_json
        app.fork(ForkOrder(run=old, params=ParamsInput(cli=[("who", "cay")])))
        assert world.calls() == ["first", "second", "third"]


GATED = """\
    ---
    steps:
      - { id: one, gate: { max_loops: 3 } }
      - { id: two }
    ---
    ## one
    first
    ### gate
    rubric
    ## two
    second
    """


def test_a_gate_loop_replays_whole_with_its_verdicts_and_feedback(world: World) -> None:
    path = world.write(GATED)
    with interlock.open(world.root) as app:
        old = app.run_file(path)
        assert old.exit_code == 0
        assert world.calls() == ["first", "first", "rubric", "rubric", "second"]
        path.write_text(path.read_text(encoding="utf-8").replace("second", "mended"), encoding="utf-8")
        new = app.fork(ForkOrder(run=old.run_id))
        assert new.exit_code == 0
        assert world.calls() == ["mended"]
        assert app.store.steps(new.run_id)[0].loop == 2
        compare(app.store, new.run_id)


def test_another_rubric_is_judged_anew(world: World) -> None:
    path = world.write(GATED)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        world.calls()
        path.write_text(path.read_text(encoding="utf-8").replace("rubric", "new rubric"), encoding="utf-8")
        app.fork(ForkOrder(run=old))
        assert world.calls() == ["new rubric", "new rubric"]


def test_an_approval_is_never_taken_over(world: World) -> None:
    path = world.write("---\nsteps:\n  - { id: one, run: echo hi, gate: { approval: true } }\n---\n")
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        app.approve(old)
        assert app.run_id(old).exit_code == 0
        new = app.fork(ForkOrder(run=old))
        assert new.exit_code == 4
        assert census(app, new.run_id) == [(1, 1)]


def test_failed_items_run_again_and_the_others_do_not(world: World) -> None:
    path = world.write(
        """\
        ---
        steps:
          - id: each
            map: { over: params.items }
            on_error: continue
            run: echo "$INTERLOCK_ITEM" >> ran; test "$INTERLOCK_ITEM" != b || test -e fixed
        params: { items: { type: array, default: [a, b, c] } }
        ---
        """
    )
    ran = world.root / "ran"
    with interlock.open(world.root) as app:
        old = app.run_file(path)
        assert old.exit_code == 6
        ran.unlink()
        (world.root / "fixed").touch()
        new = app.fork(ForkOrder(run=old.run_id))
        assert new.exit_code == 0
        assert ran.read_text(encoding="utf-8") == "b\n"
        assert census(app, new.run_id) == [(3, 2)]


def test_votes_and_external_effects_are_not_repeated(world: World) -> None:
    path = world.write(
        """\
        ---
        steps:
          - { id: vote, map: { over: params.items, reducer: vote }, run: echo x >> ran; echo yes }
          - { id: send, effects: external, run: echo sent >> ran }
          - { id: last, run: echo last >> ran }
        params: { items: { type: array, default: [1, 2, 3] } }
        ---
        """
    )
    ran = world.root / "ran"
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        ran.unlink()
        path.write_text(path.read_text(encoding="utf-8").replace("echo last", "echo other"), encoding="utf-8")
        new = app.fork(ForkOrder(run=old)).run_id
        assert ran.read_text(encoding="utf-8") == "other\n"
        assert output(app, new, 0) == b'"yes"'


SEND = """\
    ---
    steps:
      - { id: send, effects: external, timeout: 300ms, run: echo sent >> ran; sleep $(cat nap) }
      - { id: last, run: echo last >> ran }
    ---
    """


@pytest.mark.parametrize("above", [False, True])
def test_an_effect_that_may_have_taken_place_is_answered_for_before_a_fork(world: World, *, above: bool) -> None:
    path = world.write(SEND)
    if above:
        path = world.write("---\nsteps: [{ id: one, uses: ./flow.md }]\n---\n", "above.md")
    (world.root / "nap").write_text("60", encoding="utf-8")
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        asked = app.store.children(old)[0].id if above else old
        (world.root / "nap").write_text("0", encoding="utf-8")
        for refused in (app.fork, app.explain_fork):
            with pytest.raises(UsageError) as caught:
                refused(ForkOrder(run=old))
            assert caught.value.code == "effect-open"
            assert f"whether send:solo of run {asked} took effect" in caught.value.message
            assert (
                caught.value.hint
                == f"say it first: interlock resolve {asked} send:solo --done (or --rerun, if it did not take place)"
            )
        assert (world.root / "ran").read_text(encoding="utf-8") == "sent\n"
        app.resolve(asked, "send:solo", done=True)
        assert app.fork(ForkOrder(run=old)).exit_code == 0
        assert (world.root / "ran").read_text(encoding="utf-8") == "sent\nlast\n"


def test_an_effect_left_open_by_an_abandoned_run_is_no_fork_s_either(world: World) -> None:
    path = world.write(SEND)
    (world.root / "nap").write_text("60", encoding="utf-8")
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        app.abandon(old)
        with pytest.raises(UsageError) as caught:
            app.fork(ForkOrder(run=old))
        assert caught.value.hint == f"go on with that run first: interlock resume {old}"
        path.write_text(path.read_text(encoding="utf-8").replace("effects: external, ", ""), encoding="utf-8")
        (world.root / "nap").write_text("0", encoding="utf-8")
        assert app.fork(ForkOrder(run=old)).exit_code == 0, "the author says that repeating it does not hurt"


ROUTED = """\
    ---
    steps:
      - { id: one, run: echo a >> ran; echo go }
      - { id: pick, route: { input: steps.one.output, when: [{ match: go, step: left }], default: right } }
      - { id: left, run: echo l >> ran }
      - { id: right, run: echo r >> ran }
      - { id: last, run: echo z >> ran }
    ---
    """


def test_from_takes_what_stands_before_a_step_as_it_is(world: World) -> None:
    path = world.write(ROUTED)
    ran = world.root / "ran"
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        ran.unlink()
        changed = path.read_text(encoding="utf-8").replace("echo a", "echo A").replace("echo z", "echo Z")
        path.write_text(changed, encoding="utf-8")
        new = app.fork(ForkOrder(run=old, from_step="last")).run_id
        assert ran.read_text(encoding="utf-8") == "Z\n"
        states = [row.state for row in app.store.steps(new)]
        assert states == ["completed", "completed", "completed", "skipped", "completed"]
        assert app.store.steps(new)[1].route == ("left",)
        compare(app.store, new)


def test_from_names_the_step_that_can_not_be_taken(world: World) -> None:
    path = world.write(ROUTED.replace("echo l >> ran", "false"))
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        with pytest.raises(UsageError) as failed:
            app.fork(ForkOrder(run=old, from_step="last"))
        assert failed.value.message == f"step 'left' can't be taken as it is: run {old} left it failed"
        with pytest.raises(UsageError, match="no step 'nope'"):
            app.fork(ForkOrder(run=old, from_step="nope"))


def test_a_workflow_that_is_gone_is_said(world: World) -> None:
    path = world.write(THREE)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        path.unlink()
        with pytest.raises(UsageError) as failed:
            app.fork(ForkOrder(run=old))
        assert failed.value.hint == f"name the file to use: interlock fork {old} --workflow FILE"


def test_an_explanation_says_what_changed_and_starts_nothing(world: World) -> None:
    path = world.write(THREE)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        world.calls()
        path.write_text(path.read_text(encoding="utf-8").replace("second", "mended"), encoding="utf-8")
        found = app.explain_fork(ForkOrder(run=old))
        told: list[Any] = [(step.action, [u.changed for u in step.units or ()]) for step in found.steps]
        assert told == [("reuse", [()]), ("run", [("prompt",)]), ("unknown", [])]
        assert world.calls() == []
        assert len(app.store.runs()) == 1


def test_a_run_that_an_unfinished_fork_needs_is_kept(world: World) -> None:
    path = world.write("---\nsteps:\n  - { id: one, run: echo hi, gate: { approval: true } }\n---\n")
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        app.abandon(old)
        fork = app.fork(ForkOrder(run=old)).run_id
        assert app.store.run(fork).state == "blocked"
        time.sleep(0.002)
        assert app.gc(older_than_ms=0).runs == ()
        app.abandon(fork)
        assert old in app.gc(older_than_ms=-1000).runs


def test_a_fork_whose_driver_is_killed_goes_on_with_what_it_took_over(world: World) -> None:
    path = world.write(ROUTED)
    ran = world.root / "ran"
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        ran.unlink()
        path.write_text(
            path.read_text(encoding="utf-8").replace(
                "echo z >> ran", "test -e go || (touch began; sleep 60); echo z >> ran"
            ),
            encoding="utf-8",
        )
    code = (
        "import interlock; from interlock.driver.forking import ForkOrder\n"
        f"interlock.open({str(world.root)!r}).fork(ForkOrder(run={old!r}))"
    )
    driver = subprocess.Popen([sys.executable, "-c", code], cwd=world.root, env=dict(os.environ))
    deadline = time.monotonic() + 60
    while not (world.root / "began").exists():
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    (world.root / "go").touch()
    with interlock.open(world.root) as app:
        (fork,) = [row.id for row in app.store.runs() if row.forked_from == old]
        assert app.run_id(fork).exit_code == 0
        assert ran.read_text(encoding="utf-8") == "z\n"
        assert [reused for _, reused in census(app, fork)] == [1, 1, 0]
        compare(app.store, fork)


def test_the_command_line_forks_and_explains_and_shows_where_units_come_from(world: World) -> None:
    path = world.write(THREE)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
    path.write_text(path.read_text(encoding="utf-8").replace("third", "mended"), encoding="utf-8")
    world.calls()

    def told(*arguments: str) -> str:
        command = [sys.executable, "-m", "interlock", *arguments]
        done = subprocess.run(command, cwd=world.root, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    explained = msgspec.json.decode(told("fork", "last", "--explain", "--json"))
    assert [step["action"] for step in explained["steps"]] == ["reuse", "reuse", "run"]
    assert explained["steps"][2]["units"][0]["changed"] == ["prompt"]
    assert (explained["reused"], explained["to_run"]) == (2, 1)
    assert "three:solo: run (changed: prompt)" in told("fork", "last", "--explain")
    assert world.calls() == []
    last = msgspec.json.decode(told("fork", "last", "--json").splitlines()[-1])
    assert world.calls() == ["mended"]
    assert (last["run"]["forked_from"], last["census"]["reused"]) == (old, 2)
    assert f"a fork of {old}, 2 of its units reused" in told("status", "last")
    units = msgspec.json.decode(told("units", "last", "--json"))
    assert [unit["reused"] for unit in units] == [[old, "one:solo", 1], [old, "two:solo", 1], None]
    assert f"(from {old})" in told("units", "last")
