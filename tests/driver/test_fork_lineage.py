"""Forks of forks, forks of what was judged by several, and what `gc` may take away from under them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.driver.forks import World, census, output
from tests.store.rebuild import compare

import interlock
from interlock.app import App
from interlock.driver.forking import ForkOrder

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
