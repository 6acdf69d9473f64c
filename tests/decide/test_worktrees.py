"""Where worktrees begin, and merges: asked for once all units have settled, and what becomes of the step then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from interlock.decide.values import UnresolvedError
from interlock.decide.worktrees import base_of, begins_at, branch, merge_unit, pieces, safe_name
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.outcome import Outcome
from interlock.model.plan import Map, Plan, Step
from interlock.model.run import Step as RunStep
from interlock.model.run import Unit
from interlock.model.states import Reason, RunState, StepState, UnitState
from interlock.testing.build import failed, judged, ok, plan, prompt, ref, step
from interlock.testing.simulate import Simulation, simulate, snapshot

MERGED = canon.dumps({"branch": "b", "merged": []})
PARAMS = {"items": ["a", "b", "c"], "base": "main", "wrong": 7}


def at_commit(entry: Step, commit: str | None = "c0", uncommitted: str | None = None) -> Plan:
    """A plan of one step in a repository that stood at that commit."""
    made = plan(entry)
    project = msgspec.structs.replace(made.project, commit=commit)
    return msgspec.structs.replace(made, project=project, uncommitted=uncommitted)


@pytest.mark.parametrize(
    ("settings", "begins"),
    [
        ({}, None),
        ({"isolation": "worktree"}, "c0"),
        ({"isolation": "worktree", "worktree_uncommitted": True}, "u0"),
        ({"isolation": "worktree", "worktree_base": ref("params.base")}, "main"),
    ],
)
def test_a_worktree_begins_where_the_step_says(settings: dict[str, Any], begins: str | None) -> None:
    specs = at_commit(step("s", **settings), uncommitted="u0")
    assert begins_at(snapshot(specs, PARAMS), specs.steps[0]) == begins


def test_without_a_commit_on_record_it_begins_at_the_head() -> None:
    specs = at_commit(step("s", isolation="worktree", worktree_uncommitted=True), commit=None)
    assert begins_at(snapshot(specs), specs.steps[0]) == "HEAD"


@pytest.mark.parametrize("value", [7, "", "--option", None])
def test_what_is_no_commit_is_no_beginning(value: object) -> None:
    specs = at_commit(step("s", isolation="worktree", worktree_base=ref("params.base")))
    with pytest.raises(UnresolvedError, match=r"^params\.base: a worktree begins at a commit or branch, and this is "):
        begins_at(snapshot(specs, {"base": value}), specs.steps[0])


def merging(**settings: Any) -> Plan:
    reduced = Map(over=ref("params.items"), reducer="merge")
    return at_commit(step("m", map=reduced, isolation="worktree", **settings))


def world(*troubles: Outcome, left: Callable[[Unit], str | None] = lambda unit: f"left-{unit.index}") -> Any:
    """Units leave a commit each; the first merges come to `troubles`, the next one is made."""
    before = list(troubles)

    def answer(_step: RunStep, unit: Unit) -> Outcome:
        if unit.kind == "merge":
            return before.pop(0) if before else ok(MERGED, is_json=True)
        if unit.kind == "judge":
            return ok(canon.dumps({"complete": unit.loop > 1, "missing": [], "feedback": "more"}))
        commit = left(unit)
        tree = ev.Tree(base="c0", commit=commit)
        return msgspec.structs.replace(ok("did it"), tree=tree) if commit else failed()

    return answer


def kinds(simulation: Simulation) -> list[str]:
    return [event.kind for event in simulation.events if isinstance(event, ev.UnitsAdded)]


def test_units_are_merged_once_all_have_settled_and_the_merge_is_the_artifact() -> None:
    done = simulate(merging(), world(left=lambda unit: "c0" if unit.index == 1 else f"left-{unit.index}"), PARAMS)
    (held,) = done.snap.steps
    assert (done.snap.run.state, held.artifact) == (RunState.COMPLETED, MERGED)
    assert kinds(done) == ["merge"]
    merged = merge_unit(held)
    assert merged is not None
    assert (merged.id, merged.state) == ("m.merge:l1", UnitState.COMPLETED)
    # one that left things as they were has nothing to merge
    assert [(piece.unit.index, piece.commit) for piece in pieces(held)] == [(0, "left-0"), (2, "left-2")]
    ends = [event for event in done.events if isinstance(event, ev.UnitsAdded | ev.AttemptFinished)]
    assert isinstance(ends[3], ev.UnitsAdded), "after the three units' ends"


def test_a_failed_unit_fails_the_step_before_anything_is_merged() -> None:
    done = simulate(merging(), world(left=lambda unit: None if unit.index == 1 else "left"), PARAMS)
    assert (done.snap.run.state, kinds(done)) == (RunState.FAILED, [])


def test_with_failures_that_may_be_the_rest_is_merged() -> None:
    specs = merging(on_error="continue")
    done = simulate(specs, world(left=lambda unit: None if unit.index == 1 else "left"), PARAMS)
    assert (done.snap.run.state, done.snap.run.outcome) == (RunState.COMPLETED, "degraded")
    assert [piece.unit.index for piece in pieces(done.snap.steps[0])] == [0, 2]


def test_a_merge_that_cannot_be_made_fails_the_step() -> None:
    done = simulate(merging(), world(failed(Reason.ISOLATION_FAILED, "no git")), PARAMS)
    (held,) = done.snap.steps
    assert (done.snap.run.state, held.state, held.reason) == (RunState.FAILED, StepState.FAILED, "isolation_failed")
    assert done.snap.run.detail.endswith("m.merge:l1 gave no merge: isolation_failed: no git")


def test_a_check_that_cannot_be_had_blocks_until_the_next_driver_merges_again() -> None:
    answer = world(failed(Reason.TIMEOUT, "too slow"))
    stopped = simulate(merging(), answer, PARAMS)
    assert (stopped.snap.run.state, stopped.snap.run.reason) == (RunState.BLOCKED, "check_unavailable")
    going_on = simulate(merging(), answer, PARAMS, prefix=stopped.events)
    assert (going_on.snap.run.state, going_on.snap.steps[0].artifact) == (RunState.COMPLETED, MERGED)
    works = [e for e in going_on.events if isinstance(e, ev.AttemptReserved)]
    assert len(works) == 1, "the merge alone is done again"


def test_nothing_is_merged_once_the_run_has_failed_elsewhere() -> None:
    specs = merging(needs=[])
    other = msgspec.structs.replace(specs, steps=(*specs.steps, step("other", needs=[])))

    def answer(held: RunStep, unit: Unit) -> Outcome:
        return failed() if held.id == "other" else world()(held, unit)

    done = simulate(other, answer, PARAMS, pick=lambda count: count - 1)
    assert (done.snap.run.state, kinds(done)) == (RunState.FAILED, [])


def test_a_loop_goes_on_from_what_the_one_before_left() -> None:
    specs = at_commit(step("s", prompt(), isolation="worktree", gate=judged(loops=2)))
    done = simulate(specs, world(left=lambda unit: f"left-l{unit.loop}"))
    (held,) = done.snap.steps
    first, second = [unit for unit in held.units if unit.kind == "work"]
    assert [base_of(done.snap, specs.steps[0], held, unit) for unit in (first, second)] == ["c0", "left-l1"]
    none = plan(step("s"))
    assert base_of(snapshot(none), none.steps[0], held, first) is None


def test_names_tell_rounds_and_loops_apart() -> None:
    held = snapshot(merging(), PARAMS).steps[0]
    named = [branch("run", held)]
    held.round = 2
    named.append(branch("run", held))
    held.loop = 3
    named.append(branch("run", held))
    assert named == ["interlock/run/m", "interlock/run/m-r2", "interlock/run/m-r2-l3"]
    assert safe_name("fix:0a1b~r2~l3") == "fix.0a1b.r2.l3"
