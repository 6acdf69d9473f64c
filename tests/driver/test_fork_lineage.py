"""Forks of forks, forks of what was judged by several, and what `gc` may take away from under them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.driver.forks import World, census, output
from tests.store.rebuild import compare

import interlock
from interlock.app import App
from interlock.driver.forking import ForkOrder
from interlock.driver.params import ParamsInput
from interlock.errors import UsageError

CHAIN = """\
    ---
    steps:
      - { id: one }
      - { id: two, inputs: [steps.one.output] }
      - { id: three, inputs: [steps.two.output], gate: { approval: true } }
    ---
    ## one
    first
    ## two
    second
    ## three
    third
    """
JUDGES = """\
    ---
    steps:
      - { id: one, gate: { judges: %d } }
      - { id: two }
    ---
    ## one
    first
    ### gate
    rubric
    ## two
    second
    """
SPLIT = """#!/bin/sh
prompt=$(cat)
echo "$prompt" | head -1 >> "{log}"
case "$prompt" in
  *rubric*) if mkdir "{log}.first" 2>/dev/null; then echo '{{"complete":false}}'; else echo '{{"complete":true}}'; fi;;
  *) echo done;;
esac
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def mend(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def test_the_answers_of_several_judges_are_taken_over_as_one_verdict(world: World) -> None:
    (world.root / "agent.sh").write_text(SPLIT.format(log=world.log), encoding="utf-8")
    path = world.write(JUDGES % 3)
    with interlock.open(world.root) as app:
        old = app.run_file(path)
        assert (old.exit_code, world.calls()) == (0, ["first", "rubric", "rubric", "rubric", "second"])
        mend(path, "second", "mended")
        new = app.fork(ForkOrder(run=old.run_id))
        assert (new.exit_code, world.calls()) == (0, ["mended"])
        verdicts = [[unit.verdict for unit in app.store.units(run, step=0)] for run in (old.run_id, new.run_id)]
        assert verdicts[0] == verdicts[1]
        assert sorted(str(said) for said in verdicts[0]) == ["None", "pass", "pass", "reject"]
        compare(app.store, new.run_id)


def test_a_majority_that_needed_a_tie_breaker_is_taken_over_with_it(world: World) -> None:
    (world.root / "agent.sh").write_text(SPLIT.format(log=world.log), encoding="utf-8")
    path = world.write(JUDGES % 2)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        assert app.store.run(old).reason == "judge_unavailable"
        assert app.run_id(old).exit_code == 0
        assert world.calls() == ["first", "rubric", "rubric", "rubric", "second"]
        mend(path, "second", "mended")
        new = app.fork(ForkOrder(run=old))
        assert (new.exit_code, world.calls()) == (0, ["mended"])
        found = [unit.id for unit in app.store.units(new.run_id, step=0)]
        assert found == ["one:solo", "one.gate:l1.j1", "one.gate:l1.j2", "one.gate:l1.j3"]
        compare(app.store, new.run_id)
        assert app.fork(ForkOrder(run=new.run_id)).exit_code == 0
        assert world.calls() == []


def approved(app: App, path: Path) -> str:
    run = app.run_file(path).run_id
    app.approve(run)
    assert app.run_id(run).exit_code == 0
    return run


def test_what_from_took_is_known_in_the_next_fork_by_the_input_that_it_was_done_on(world: World) -> None:
    path = world.write(CHAIN)
    with interlock.open(world.root) as app:
        first = approved(app, path)
        world.calls()
        mend(path, "first", "mended")
        # one is taken although its prompt is another now
        second = app.fork(ForkOrder(run=first, from_step="two")).run_id
        assert (world.calls(), census(app, second)) == ([], [(1, 1), (1, 1), (1, 1)])
        explained = app.explain_fork(ForkOrder(run=second))
        (unit,) = explained.steps[0].units or ()
        assert (unit.action, unit.why) == ("run", "the old run took it as it was, from another input")
        assert unit.old is not None
        assert unit.old.run == first
        third = app.fork(ForkOrder(run=second)).run_id
        assert "mended" in world.calls()
        mend(path, "mended", "first")
        fourth = app.fork(ForkOrder(run=second)).run_id
        assert (world.calls(), census(app, fourth)) == ([], [(1, 1), (1, 1), (1, 1)])
        origins = {unit.reused.run for unit in app.store.units(fourth) if unit.reused}
        assert origins == {first}
        # and by --from again
        fifth = app.fork(ForkOrder(run=fourth, from_step="two")).run_id
        for run in (second, third, fourth, fifth):
            compare(app.store, run)


def test_a_fork_that_took_steps_as_they_were_diverges_from_nothing(world: World) -> None:
    path = world.write(CHAIN)
    with interlock.open(world.root) as app:
        first = approved(app, path)
        mend(path, "third", "mended")
        second = app.fork(ForkOrder(run=first, from_step="three")).run_id
        app.approve(second)
        assert app.run_id(second).exit_code == 0
        assert app.store.notices(second) == frozenset()


def test_gc_takes_what_a_forks_source_took_from_and_the_fork_goes_on(world: World) -> None:
    path = world.write(CHAIN)
    with interlock.open(world.root) as app:
        first = approved(app, path)
        second = app.fork(ForkOrder(run=first)).run_id
        app.approve(second)
        assert app.run_id(second).exit_code == 0
        third = app.fork(ForkOrder(run=second)).run_id
        assert app.store.run(third).state == "blocked"
        world.calls()
        # the second is what the third may take more from; the first nobody needs
        assert app.gc(older_than_ms=-1_000).runs == (first,)
        explained = app.explain_fork(ForkOrder(run=third))
        assert explained.stakes["one:solo"].tokens is None, "what it cost is gone with the run"
        app.approve(third)
        assert app.run_id(third).exit_code == 0
        assert [output(app, third, n) for n in range(3)] == [output(app, second, n) for n in range(3)]
        assert {unit.reused.run for unit in app.store.units(third) if unit.reused} == {first}
        assert set(app.gc(older_than_ms=-1_000).runs) == {second, third}
        assert world.calls() == []


def test_a_recorded_parameter_that_no_longer_fits_is_told_with_where_it_comes_from(world: World) -> None:
    path = world.write("---\nparams: { w: { type: string, default: x } }\nsteps:\n  - { id: one, run: echo hi }\n---\n")
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        mend(path, "type: string, default: x", "type: integer")
        hint = f"parameters are those of run {old} where none are given; give another value with -p NAME=VALUE"
        for call in (lambda: app.explain_fork(ForkOrder(run=old)), lambda: app.replay(old, workflow=path)):
            with pytest.raises(UsageError) as raised:
                call()
            assert (raised.value.message, raised.value.hint) == ('param \'w\': "x" is not of type "integer"', hint)
        given = ParamsInput(cli=[("w", "3")])
        assert app.fork(ForkOrder(run=old, params=given)).exit_code == 0
        assert app.replay(old, workflow=path, params=given).exit_code == 0


def test_two_forks_at_once_take_over_the_same_and_repeat_nothing(world: World) -> None:
    path = world.write(CHAIN)
    with interlock.open(world.root) as app:
        old = approved(app, path)
    world.calls()
    command = [sys.executable, "-m", "interlock", "fork", old, "--json"]
    both = [subprocess.Popen(command, cwd=world.root, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    ends = [json.loads(fork.communicate(timeout=60)[0].splitlines()[-1]) for fork in both]
    assert [fork.returncode for fork in both] == [4, 4]
    assert {end["run"]["forked_from"] for end in ends} == {old}
    assert len({end["run"]["id"] for end in ends}) == 2
    assert ([end["census"]["reused"] for end in ends], world.calls()) == ([3, 3], [])


def test_an_abandoned_run_is_forked_from_what_it_completed(world: World) -> None:
    path = world.write(CHAIN)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        app.abandon(old)
        world.calls()
        new = app.fork(ForkOrder(run=old))
        assert (new.exit_code, world.calls(), census(app, new.run_id)) == (4, [], [(1, 1), (1, 1), (1, 1)])


def test_a_renamed_step_is_new_and_a_removed_one_is_missed_by_none(world: World) -> None:
    path = world.write(CHAIN)
    with interlock.open(world.root) as app:
        old = approved(app, path)
        mend(path, "id: three", "id: third")
        mend(path, "## three", "## third")
        told = app.explain_fork(ForkOrder(run=old)).steps
        assert [(one.id, one.action) for one in told] == [("one", "reuse"), ("two", "reuse"), ("third", "run")]
        other = world.write("---\nsteps: [{ id: third }, { id: x }]\n---\n## third\na\n## x\nb\n", "new.md")
        with pytest.raises(UsageError, match=r"step 'third' can't be taken as it is: run .* has no such step"):
            app.fork(ForkOrder(run=old, workflow=other, from_step="x"))
        short = world.write("---\nsteps: [{ id: one }]\n---\n## one\nfirst\n", "short.md")
        assert [one.action for one in app.explain_fork(ForkOrder(run=old, workflow=short)).steps] == ["reuse"]
