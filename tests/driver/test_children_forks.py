"""Forks of runs with child runs: what is unchanged below is taken over too."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.driver.family_world import FLAKY, MAP, World, mend

from interlock.driver.forking import ForkOrder
from interlock.views.units import unit_view


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_completed_child_is_taken_over_whole(world: World) -> None:
    world.write(parent=MAP.replace("ON_ERROR", "continue"), child=FLAKY)
    mend(world, "a", "b", "c")
    first = world.run()
    before = world.lines()
    forked = world.app.fork(ForkOrder(run=first.run_id))
    assert forked.state == "completed"
    assert world.artifact(forked.run_id, "each") == ["ok a", "ok b", "ok c"]
    assert world.lines() == before
    assert world.children(forked.run_id) == []


def test_a_child_that_failed_goes_on_in_a_fork_from_what_it_had_completed(world: World) -> None:
    world.write(parent=MAP.replace("ON_ERROR", "continue").replace("[a, b, c]", "[a, b]"), child=FLAKY)
    mend(world, "a")
    first = world.run()
    assert sorted(world.lines()) == ["once a", "once b", "try a", "try b"]
    mend(world, "b")
    forked = world.app.fork(ForkOrder(run=first.run_id))
    assert world.artifact(forked.run_id, "each") == ["ok a", "ok b"]
    assert sorted(world.lines()) == ["once a", "once b", "try a", "try b", "try b"]
    (child,) = world.children(forked.run_id)
    (source,) = [row.id for row in world.children(first.run_id) if row.state == "failed"]
    assert child.forked_from == source
    reused = [unit.id for unit in world.app.store.units(child.id) if unit.reused is not None]
    assert reused == ["once:solo"]


def test_a_mended_child_runs_again_from_the_step_that_was_mended(world: World) -> None:
    world.write(parent=MAP.replace("ON_ERROR", "fail").replace("[a, b, c]", "[a]"), child=FLAKY)
    mend(world, "a")
    first = world.run()
    world.write(child=FLAKY.replace('echo "ok', 'echo "fine'))
    order = ForkOrder(run=first.run_id, workflow=world.folder / "parent.md")
    (explained,) = world.app.explain_fork(order).steps
    assert [(unit.action, unit.changed) for unit in explained.units or ()] == [("run", ("target",))]
    forked = world.app.fork(order)
    assert world.artifact(forked.run_id, "each") == ["fine a"]
    assert world.lines() == ["once a", "try a"]


def test_a_source_that_is_gone_means_that_nothing_is_taken_over(world: World) -> None:
    world.write(parent=MAP.replace("ON_ERROR", "fail").replace("[a, b, c]", "[a]"), child=FLAKY)
    first = world.run()
    order = ForkOrder(run=first.run_id)
    forked = world.app.fork(order)
    assert forked.state == "failed"
    world.app.gc(older_than_ms=0)
    assert world.app.store.runs(children=True) == []


PART = """
params: { name: {}, all: { type: array, default: [x, y] } }
steps:
  - id: part
    on_error: continue
    map: { over: params.all }
    run: 'echo "$INTERLOCK_ITEM" >> said; test -e "mended-$INTERLOCK_ITEM" && echo "ok $INTERLOCK_ITEM"'
"""


def test_a_degraded_child_degrades_its_parent_and_goes_on_in_a_fork(world: World) -> None:
    middle = "params: { name: {} }\nsteps:\n  - { id: m, uses: ./part.md, with: { name: params.name } }"
    world.write(parent=MAP.replace("ON_ERROR", "fail").replace("[a, b, c]", "[a]"), child=middle, part=PART)
    mend(world, "x")
    first = world.run()
    assert (first.state, first.outcome, first.exit_code) == ("completed", "degraded", 6)
    assert world.artifact(first.run_id, "each") == [["ok x", None]]
    (unit,) = world.app.store.units(first.run_id)
    assert (unit.state, unit_view(unit, "each")["reason"]) == ("completed", "degraded")
    assert world.app.replay(first.run_id).outcome == "degraded"
    order = ForkOrder(run=first.run_id)
    (explained,) = world.app.explain_fork(order).steps
    assert [one.why for one in explained.units or ()] == [
        "was degraded in the old run: what it completed is taken over, the rest is done again"
    ]
    mend(world, "y")
    forked = world.app.fork(order)
    assert (forked.outcome, world.artifact(forked.run_id, "each")) == ("ok", [["ok x", "ok y"]])
    assert sorted(world.lines()) == ["x", "y", "y"]


def test_a_degraded_child_that_is_taken_as_it_is_degrades_the_fork_and_its_forks(world: World) -> None:
    parent = "steps:\n  - { id: below, uses: ./part.md }\n  - { id: after, run: echo x }"
    world.write(parent=parent, part=PART)
    first = world.run()
    forked = world.app.fork(ForkOrder(run=first.run_id, from_step="after"))
    again = world.app.fork(ForkOrder(run=forked.run_id))
    assert [one.outcome for one in (first, forked, again)] == ["degraded"] * 3
    assert world.app.replay(again.run_id).outcome == "degraded"
    assert sorted(world.lines()) == ["x", "y"], "nothing was done again"
