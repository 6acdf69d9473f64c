"""What a fork saves and what it runs again, in tokens and dollars: loops and judges were paid for, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.driver.forks import World

import interlock
from interlock.driver.forking import ForkOrder
from interlock.views.fork import fork_view

AGENT = """#!/bin/sh
usage='"usage":{"input_tokens":90,"output_tokens":10,"cost_usd":0.25}'
case "$(cat)" in
  *rubric*told*) said='{\\"complete\\":true,\\"missing\\":[],\\"feedback\\":\\"\\"}' ;;
  *rubric*) said='{\\"complete\\":false,\\"missing\\":[],\\"feedback\\":\\"more\\"}' ;;
  *more*) said=told ;;
  *) said=did ;;
esac
printf '{"text":"%s",%s}' "$said" "$usage"
"""
FLOW = """\
    ---
    steps:
      - { id: list, run: 'echo one' }
      - { id: draft, inputs: [steps.list.output], gate: { max_loops: 3 } }
      - { id: last, inputs: [steps.draft.output], run: echo end }
    ---
    ## draft
    a draft
    ### gate
    rubric
    """
NOTHING = {"tokens": 0, "cost_usd": 0.0}
PAID = {"tokens": 400, "cost_usd": 1.0}


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    (tmp_path / "agent.sh").write_text(AGENT, encoding="utf-8")
    with (tmp_path / "interlock.toml").open("a", encoding="utf-8") as config:
        config.write('output = "json"\n')
    return made


def explained(app: Any, run: str) -> dict[str, Any]:
    found = app.explain_fork(ForkOrder(run=run))
    return fork_view(found, found.estimate)


def mended(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def test_what_is_saved_is_all_that_was_paid_loops_and_judges_included(world: World) -> None:
    path = world.write(FLOW)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        spent = app.store.spent(old)
        assert {"tokens": spent.tokens, "cost_usd": spent.cost_usd} == PAID
        whole = explained(app, old)
        assert (whole["saved"], whole["again"], whole["reused"]) == (PAID, NOTHING, 3)
        fork = app.fork(ForkOrder(run=old)).run_id
        assert app.store.spent(fork).tokens == 0
        assert explained(app, fork)["saved"] == PAID, "a fork of a fork saves what was paid where it was done"


def test_what_runs_again_is_told_with_the_loops_and_judges_it_needed(world: World) -> None:
    path = world.write(FLOW)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        mended(path, "a draft", "a better draft")
        again = explained(app, old)
        assert (again["saved"], again["again"], again["to_run"]) == (NOTHING, PAID, 1)


def test_a_changed_rubric_keeps_the_work_and_pays_the_judges_again(world: World) -> None:
    path = world.write(FLOW)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        mended(path, "rubric", "rubric: ")
        found = explained(app, old)
        assert (found["to_run"], found["again"]) == (0, {"tokens": 200, "cost_usd": 0.5})


def test_what_may_still_be_taken_over_is_not_sure_to_cost_anything(world: World) -> None:
    path = world.write(FLOW)
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        mended(path, "echo one", "echo  one")
        estimate = explained(app, old)["estimate"]
        assert {(part["part"], part["calls"]["lower"], part["calls"]["upper"]) for part in estimate["steps"]} == {
            ("work", 0, 3),
            ("judge", 0, 6),
        }
        assert estimate["tokens"]["lower"] == 0
        assert any("taken over" in text for text in estimate["unknowns"])
        assert app.store.spent(app.fork(ForkOrder(run=old)).run_id).tokens == 0


def test_a_step_that_waits_for_a_person_is_not_sure_to_cost_more(world: World) -> None:
    path = world.write(FLOW.replace("max_loops: 3", "max_loops: 3, approval: true"))
    with interlock.open(world.root) as app:
        old = app.run_file(path).run_id
        for estimate in (app.preview(old).estimate, app.explain_fork(ForkOrder(run=old)).estimate):
            assert [(part.part, part.calls.lower, part.calls.upper) for part in estimate.steps] == [("judge", 0, 6)]
            assert "whether 'draft' costs more is for a person to say" in estimate.unknowns
