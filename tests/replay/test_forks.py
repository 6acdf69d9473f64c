"""A fork is replayed as it ran: what it took as it was is taken again, and its taken verdicts are answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.driver.forks import World
from tests.driver.test_fork_lineage import JUDGES, SPLIT, mend
from tests.replay.checking import exported, same

import interlock
from interlock.driver.forking import ForkOrder

GATED = """\
    ---
    steps:
      - { id: one, run: echo one, gate: { check: 'true' } }
      - { id: pick, route: { input: steps.one.output, when: [{ match: one, step: two }], default: other } }
      - { id: two, run: echo two, gate: { approval: true } }
      - { id: other, run: echo other }
      - id: each
        needs: [two]
        map: { over: params.items }
        on_error: continue
        run: test "$INTERLOCK_ITEM" != b
      - { id: last, run: 'echo "$INTERLOCK_PARAM_WORD"' }
    params: { word: { type: string, default: hi }, items: { type: array, default: [a, b] } }
    ---
    """


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_fork_that_took_steps_as_they_were_is_replayed_with_them(world: World) -> None:
    path = world.write(GATED)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        app.approve(old)
        assert app.run_id(old).exit_code == 6
        mend(path, "echo one", "echo 1")
        for start, answers in (("last", 1), ("each", 3), ("other", 3)):
            fork = app.fork(ForkOrder(run=old, from_step=start)).run_id
            found = app.replay(fork)
            same(found)
            assert found.answered == answers
            with exported(app, fork) as export:
                same(export.replay(fork))


def test_a_fork_that_took_a_checks_verdict_over_is_replayed_with_it(world: World) -> None:
    path = world.write(GATED)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        fork = app.fork(ForkOrder(run=old)).run_id
        assert app.store.run(fork).state == "blocked"
        same(app.replay(fork))
        app.approve(fork)
        app.run_id(fork)
        same(app.replay(fork))


def test_a_rejected_verdict_that_was_taken_over_is_replayed_as_rejected(world: World) -> None:
    path = world.write("---\nsteps:\n  - { id: one, run: echo hi, gate: { check: echo no; exit 1 } }\n---\n")
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        fork = app.fork(ForkOrder(run=old)).run_id
        assert app.store.run(fork).reason == "gate_rejected"
        same(app.replay(fork))


def test_a_fork_that_took_a_broken_tie_over_is_replayed_with_the_judge_who_broke_it(world: World) -> None:
    (world.root / "agent.sh").write_text(SPLIT.format(log=world.log), encoding="utf-8")
    path = world.write(JUDGES % 2)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        app.run_id(old)
        same(app.replay(old))
        fork = app.fork(ForkOrder(run=old)).run_id
        assert app.store.run(fork).state == "completed"
        same(app.replay(fork))


def test_a_changed_workflow_gets_the_taken_steps_that_it_still_has(world: World) -> None:
    path = world.write(GATED)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        app.approve(old)
        app.run_id(old)
        fork = app.fork(ForkOrder(run=old, from_step="last")).run_id
        changed = world.write(
            GATED.replace("id: other", "id: else").replace("default: other", "default: else"), "new.md"
        )
        found = app.replay(fork, workflow=changed)
        states = {step.id: (step.state, step.same) for step in found.steps}
        assert states["one"] == states["two"] == ("completed", True)
        assert states["else"] == ("skipped", False)
        assert states["last"] == ("completed", True)
        assert found.not_recorded == {}
