"""Steps in worktrees, from the workflow's file to git: what is made, kept, gone on from and merged."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import interlock
from interlock.dispatch.git import trees
from interlock.driver.forking import ForkOrder
from interlock.driver.worktrees import Worktrees
from interlock.errors import WorkflowError

from .conftest import World

LIST = "  - { id: list, run: 'echo ''[\"x\",\"y\",\"z\"]''', output: { type: array } }\n"


def test_what_a_command_changes_is_kept_and_named_and_the_checkout_stays_as_it_was(world: World) -> None:
    result, _, units = world.run("  - { id: a, isolation: worktree, run: 'echo two > file; echo new > other' }\n")
    assert result.state == "completed"
    (unit,) = units
    assert unit.worktree == f"{world.root}/.interlock/worktrees/{result.run_id}/a.solo/1"
    assert world.registered() == [unit.worktree]
    assert unit.left == world.git("rev-parse", f"refs/interlock/{result.run_id}/a.solo/1")
    assert world.git("show", f"{unit.left}:file") == "two"
    assert (world.root / "file").read_text() == "one\n"
    assert world.git("status", "--porcelain") == ""


def test_an_unchanged_worktree_is_gone_when_the_run_is_over(world: World) -> None:
    result, artifacts, units = world.run("  - { id: a, isolation: worktree, run: 'pwd; cat file' }\n")
    assert artifacts["a"].endswith("/a.solo/1\none")
    assert world.registered() == []
    assert units[0].left == units[0].base == world.git("rev-parse", "HEAD")
    assert not (world.root / ".interlock" / "worktrees" / result.run_id).exists()


def test_a_failed_attempt_s_changes_are_kept_and_its_retry_begins_at_the_base(world: World) -> None:
    step = "  - { id: a, isolation: worktree, retry: { max: 1, on: [non_zero_exit], backoff: { initial: 1ms } }, "
    step += "run: 'cat file; echo $INTERLOCK_ATTEMPT > file; [ $INTERLOCK_ATTEMPT = 2 ]' }\n"
    result, artifacts, _ = world.run(step)
    assert artifacts["a"] == "one"
    kept = [world.git("show", f"refs/interlock/{result.run_id}/a.solo/{n}:file") for n in (1, 2)]
    assert kept == ["1", "2"]


def test_a_check_of_a_solo_step_runs_in_what_its_unit_left(world: World) -> None:
    step = "  - { id: a, isolation: worktree, run: 'echo new > made', gate: { check: 'test -f made' } }\n"
    result, _, _ = world.run(step)
    assert result.state == "completed"
    assert not (world.root / "made").exists()


def test_a_merge_brings_green_units_together_in_item_order_and_leaves_red_and_conflicting_ones_out(
    world: World,
) -> None:
    work = "if [ $INTERLOCK_ITEM = y ]; then touch bad; fi; echo $INTERLOCK_ITEM > $INTERLOCK_ITEM.txt"
    merge = "  - { id: mend, isolation: worktree, map: { over: steps.list.output, reducer: merge }, "
    merge += f"run: '{work}', gate: {{ check: 'test ! -e bad' }} }}\n"
    after = "  - { id: after, isolation: worktree, worktree_base: steps.mend.output.branch, run: 'ls *.txt' }\n"
    result, artifacts, units = world.run(LIST + merge + after)
    assert result.state == "completed"
    made = artifacts["mend"]
    assert made["branch"] == f"interlock/{result.run_id}/mend"
    assert [entry["item"] for entry in made["merged"]] == ["x", "z"]
    assert [entry["item"] for entry in made["rejected"]] == ["y"]
    assert made["conflicts"] == []
    assert made["tree"] == world.git("rev-parse", f"{made['branch']}^{{tree}}")
    assert artifacts["after"] == "x.txt\nz.txt"
    assert [unit.id for unit in units if unit.kind == "merge"] == ["mend.merge:l1"]
    assert world.git("rev-parse", "--abbrev-ref", "HEAD") == "main"


def test_a_conflict_is_a_part_of_the_artifact_with_both_sides_kept(world: World) -> None:
    merge = "  - { id: m, isolation: worktree, map: { over: steps.list.output, reducer: merge }, "
    merge += "run: 'echo $INTERLOCK_ITEM > file' }\n"
    _, artifacts, _ = world.run(LIST + merge)
    made = artifacts["m"]
    assert [entry["item"] for entry in made["merged"]] == ["x"]
    assert [(entry["item"], entry["paths"]) for entry in made["conflicts"]] == [("y", ["file"]), ("z", ["file"])]
    assert world.git("show", f"{made['conflicts'][0]['theirs']}:file") == "y"


def test_what_a_fork_took_into_its_merge_is_shown_and_applied_from_where_it_began(world: World) -> None:
    merge = "  - { id: m, isolation: worktree, map: { over: steps.list.output, reducer: merge }, "
    merge += "run: 'echo $INTERLOCK_ITEM > $INTERLOCK_ITEM.txt' }\n"
    first, _, _ = world.run(LIST + merge)
    worktrees = Worktrees(world.root, world.root / ".interlock")
    patches = [worktrees.diff(tree) for tree in worktrees.select(first.run_id, None)]
    with interlock.open(world.root) as app:
        fork = app.fork(ForkOrder(run=first.run_id)).run_id
    for tree in worktrees.select(first.run_id, None):
        worktrees.drop(tree)
    taken = worktrees.select(fork, None)
    assert [tree.files for tree in taken] == [1, 1, 1]
    assert [worktrees.diff(tree) for tree in taken] == patches
    assert {worktrees.apply(tree) for tree in taken} == {("x.txt",), ("y.txt",), ("z.txt",)}


def test_a_fork_does_again_what_was_dropped_and_takes_the_rest(world: World) -> None:
    merge = "  - { id: m, isolation: worktree, map: { over: steps.list.output, reducer: merge }, "
    merge += "run: 'echo $INTERLOCK_ITEM > $INTERLOCK_ITEM.txt; date +%s%N > when.$INTERLOCK_ITEM' }\n"
    first, _, _ = world.run(LIST + merge)
    worktrees = Worktrees(world.root, world.root / ".interlock")
    dropped = next(tree for tree in worktrees.select(first.run_id, None) if b"y.txt" in worktrees.diff(tree))
    worktrees.drop(dropped)
    world.git("update-ref", "-d", f"refs/heads/interlock/{first.run_id}/m")
    world.git("update-ref", "-d", f"refs/interlock-branches/interlock/{first.run_id}/m")
    world.git("gc", "-q", "--prune=now")
    with interlock.open(world.root) as app:
        told = {unit.id: unit.why for unit in app.explain_fork(ForkOrder(run=first.run_id)).steps[1].units or ()}
        again = [unit for unit, why in told.items() if why == "what it left in its worktree is gone"]
        assert [unit.replace(":", ".") for unit in again] == [dropped.unit]
        fork = app.fork(ForkOrder(run=first.run_id))
        assert (fork.state, fork.outcome) == ("completed", "ok")
        assert app.store.spent(fork.run_id).units == 1
    names = world.git("ls-tree", "--name-only", f"interlock/{fork.run_id}/m").splitlines()
    assert [name for name in names if name.endswith(".txt")] == ["x.txt", "y.txt", "z.txt"]


def test_a_failed_item_that_may_fail_is_left_out_of_the_merge(world: World) -> None:
    merge = "  - { id: m, isolation: worktree, on_error: continue, map: { over: steps.list.output, reducer: merge }, "
    merge += "run: 'touch $INTERLOCK_ITEM; [ $INTERLOCK_ITEM != y ]' }\n"
    result, artifacts, _ = world.run(LIST + merge)
    assert (result.state, result.outcome) == ("completed", "degraded")
    assert [entry["item"] for entry in artifacts["m"]["merged"]] == ["x", "z"]


def test_a_merge_s_check_that_cannot_start_blocks_and_the_next_run_merges(world: World) -> None:
    merge = "  - { id: m, isolation: worktree, map: { over: steps.list.output, reducer: merge }, "
    merge += f"run: 'touch $INTERLOCK_ITEM', gate: {{ check: ['{world.root}/check.sh'] }} }}\n"
    result, _, _ = world.run(LIST + merge)
    assert (result.state, result.reason) == ("blocked", "check_unavailable")
    script = world.root / "check.sh"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    result, artifacts, _ = world.again(result.run_id)
    assert result.state == "completed"
    assert len(artifacts["m"]["merged"]) == 3


def test_a_second_loop_of_an_agent_goes_on_from_what_the_first_left(world: World) -> None:
    agent = world.root / "agent.sh"
    agent.write_text("#!/bin/sh\ncat > /dev/null\necho more >> file\ncat file | tr '\\n' ' '\n")
    agent.chmod(0o755)
    (world.root / "interlock.toml").write_text(
        f'[run]\nengine = "coder"\n[engines.coder]\nkind = "agent"\nagent = "command"\ncommand = ["{agent}"]\n'
    )
    step = "  - { id: a, isolation: worktree, gate: { max_loops: 3, check: 'test $(wc -l < file) -ge 3' } }\n"
    result, artifacts, units = world.run(step, "## a\nAdd a line.\n")
    assert result.state == "completed"
    assert artifacts["a"].split() == ["one", "more", "more"]
    first, second = (unit for unit in units if unit.kind == "work")
    assert second.base == first.left
    assert world.git("rev-list", "--count", f"HEAD..{second.left}") == "2"


def test_uncommitted_work_is_taken_along_as_a_commit_of_its_own(world: World) -> None:
    (world.root / "file").write_text("changed\n")
    (world.root / "fresh").write_text("new\n")
    step = "  - { id: a, isolation: worktree, worktree_uncommitted: true, run: 'cat file fresh' }\n"
    result, artifacts, units = world.run(step)
    assert artifacts["a"] == "changed\nnew"
    assert units[0].base == world.git("rev-parse", f"refs/interlock/{result.run_id}/base")
    assert world.git("status", "--porcelain").splitlines() == ["M file", "?? fresh"]


def test_the_same_uncommitted_work_is_the_same_commit_so_keys_and_forks_find_their_run(world: World) -> None:
    (world.root / "file").write_text("changed\n")
    path = world.workflow("  - { id: a, isolation: worktree, worktree_uncommitted: true, run: 'cat file' }\n")
    with interlock.open(world.root) as app:
        first = app.run_file(path, key="k").run_id
        assert app.run_file(path, key="k").run_id == first
        explained = app.explain_fork(ForkOrder(run=first))
        assert [step.action for step in explained.steps] == ["reuse"]
        fork = app.fork(ForkOrder(run=first)).run_id
        assert [unit.reused is not None for unit in app.store.units(fork)] == [True]
    refs = world.git("for-each-ref", "--format=%(refname)", "refs/interlock").splitlines()
    assert refs == [f"refs/interlock/{run}/base" for run in sorted([first, fork])]


def test_the_uncommitted_state_is_kept_as_long_as_its_run(world: World) -> None:
    step = "  - { id: a, isolation: worktree, worktree_uncommitted: true, run: 'cat fresh' }\n"
    (world.root / "fresh").write_text("new\n")
    gone, _, _ = world.run(step)
    (world.root / "more").write_text("new\n")
    blocked, _, _ = world.run(step.replace("cat fresh' }", "cat fresh', gate: { approval: true } }"))
    bases = {run: f"refs/interlock/{run}/base" for run in (gone.run_id, blocked.run_id)}
    assert set(world.git("for-each-ref", "--format=%(refname)", "refs/interlock").splitlines()) == set(bases.values())
    with interlock.open(world.root) as app:
        assert app.gc(older_than_ms=-1000, dry_run=True).runs == (gone.run_id,)
        assert world.git("rev-parse", bases[gone.run_id])
        assert app.gc(older_than_ms=-1000).runs == (gone.run_id,)
    assert world.git("for-each-ref", "--format=%(refname)", "refs/interlock") == bases[blocked.run_id]


def test_a_base_that_names_no_commit_fails_the_step_before_anything_starts(world: World) -> None:
    steps = "  - { id: name, run: echo nowhere }\n"
    steps += "  - { id: a, isolation: worktree, worktree_base: steps.name.output, run: 'touch mark' }\n"
    result, _, units = world.run(steps)
    assert (result.state, units[1].reason) == ("failed", "isolation_failed")
    assert "'nowhere' names no commit" in units[1].error


def killed(world: World) -> str:
    """Kill a driver whose attempt has changed a file, and return the run's id."""
    step = "  - { id: a, isolation: worktree, run: 'cat file; echo $INTERLOCK_ATTEMPT > file; "
    step += f"touch {world.root}/mark; [ $INTERLOCK_ATTEMPT = 2 ] || sleep 60' }}\n"
    path = world.workflow(step)
    driver = subprocess.Popen(
        [sys.executable, "-m", "interlock", "run", str(path)], cwd=world.root, stdout=subprocess.DEVNULL
    )
    until = time.monotonic() + 30
    while not (world.root / "mark").exists() and time.monotonic() < until:
        os.sched_yield()
    driver.kill()
    driver.wait(30)
    with interlock.open(world.root) as app:
        return app.find("last")


def test_what_a_killed_driver_s_attempt_changed_is_kept_under_its_ref_and_named(world: World) -> None:
    run_id = killed(world)
    result, artifacts, _ = world.again(run_id)
    assert (result.state, artifacts["a"]) == ("completed", "one")
    ref = f"refs/interlock/{run_id}/a.solo/1"
    assert world.git("show", f"{ref}:file") == "1"
    assert world.notices == [f"what a dead driver's attempt a:solo/1 changed is kept: {ref}"]
    with interlock.open(world.root) as app:
        assert world.registered() == [row.worktree for row in app.store.worktrees(run_id) if row.kept_ref]


def test_what_cannot_be_kept_of_a_killed_driver_s_attempt_stays_where_it_is_and_is_told(world: World) -> None:
    run_id = killed(world)
    ref = f"refs/interlock/{run_id}/a.solo/1"
    world.git("update-ref", f"{ref}/in-the-way", "HEAD")
    folder = world.root / ".interlock" / "worktrees" / run_id / "a.solo" / "1"
    result, artifacts, _ = world.again(run_id)
    assert (result.state, artifacts["a"]) == ("completed", "one")
    assert (folder / "file").read_text() == "1\n"
    told = f"what a dead driver's attempt a:solo/1 changed could not be kept under a ref, and is in {folder}, still there: "
    assert [text for text in world.notices if text.startswith(told)]
    world.git("update-ref", "-d", f"{ref}/in-the-way")
    assert str(folder) in world.registered()


@pytest.mark.parametrize("commit", [False, True])
def test_without_a_repository_or_a_commit_lint_says_so_at_the_place(tmp_path: Path, *, commit: bool) -> None:
    if commit:
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, timeout=60)
    path = tmp_path / "flow.md"
    path.write_text("---\nsteps:\n  - { id: a, isolation: worktree, run: 'true' }\n---\n")
    with interlock.open(tmp_path) as app, pytest.raises(WorkflowError) as caught:
        app.run_file(path)
    (found,) = caught.value.diagnostics
    why = "has no commit yet" if commit else "lies in no git repository with a working tree"
    assert (found.code, found.line) == ("no-repository", 3)
    assert found.message.endswith(why)


def test_a_bare_repository_and_one_of_another_user_are_told_for_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "flow.md"
    path.write_text("---\nsteps:\n  - { id: a, isolation: worktree, run: 'true' }\n---\n")

    def refused() -> tuple[str, str]:
        with interlock.open(tmp_path) as app, pytest.raises(WorkflowError) as caught:
            app.run_file(path)
        (found,) = caught.value.diagnostics
        return found.message, found.hint

    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path)], check=True, timeout=60)
    message, hint = refused()
    assert message == f"step 'a' can't have a worktree: {tmp_path} is in a git repository without a checkout"
    assert hint == "work in a checkout of it: git worktree add FOLDER"
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    subprocess.run(["git", "init", "-q", str(tmp_path / "other")], check=True, timeout=60)
    path.rename(tmp_path / "other" / "flow.md")
    tmp_path, path = tmp_path / "other", tmp_path / "other" / "flow.md"
    message, hint = refused()
    assert message.endswith(f"git refuses the repository at {tmp_path}, since another user owns it")
    assert hint == f"if you trust it: git config --global --add safe.directory {tmp_path}"


def test_a_worktree_that_cannot_be_removed_is_told_of(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "Trees", partial(trees.Trees, lock_wait_s=0.1))
    result, _, _ = world.run("  - { id: work, isolation: worktree, run: git worktree lock --reason mine . }\n")
    assert result.state == "completed"
    [left] = world.registered()
    assert any(
        left in notice and "could not be removed" in notice and "locked: mine" in notice for notice in world.notices
    )
