"""Agents that go on: in their session, in their worktree, with what they had done and what they had not committed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import World

CONFIG = """[run]
engine = "coder"
[engines.coder]
kind = "agent"
agent = "command"
command = ["{agent}"]
output = "json"
"""
AGENT = """#!/bin/sh
cat > /dev/null
echo more >> file
# ignored, as caches and what was installed are
echo "$INTERLOCK_ATTEMPT" >> cache.sh
echo "$INTERLOCK_SESSION $PWD $(git rev-parse HEAD) $(wc -l < file) $(wc -l < cache.sh)" >> "{root}/mark"
{end}
echo '{{"text": "done", "session": "s1"}}'
"""
LIST = """  - { id: list, run: 'echo ''["x","y","z"]''', output: { type: array } }
"""
WARM = "retry: { max: 2, session: continue, on: [non_zero_exit], backoff: { initial: 1ms } }"
FAIL_ONCE = 'if [ "$(wc -l < {root}/mark)" = 1 ]; then echo \'{{"text": "", "session": "s1"}}\'; exit 1; fi'


@pytest.fixture
def marks(world: World) -> Path:
    return world.root / "mark"


def agent(world: World, end: str = "") -> None:
    script = world.root / "agent.sh"
    script.write_text(AGENT.format(root=world.root, end=end.format(root=world.root)))
    script.chmod(0o755)
    (world.root / "interlock.toml").write_text(CONFIG.format(agent=script))


def seen(marks: Path) -> list[list[str]]:
    return [line.split(" ") for line in marks.read_text().splitlines()]


def test_a_warm_retry_goes_on_in_its_session_at_its_path_and_begins_at_the_base(world: World, marks: Path) -> None:
    agent(world, FAIL_ONCE)
    result, _, (unit,) = world.run(f"  - {{ id: a, isolation: worktree, {WARM} }}\n", "## a\nAdd a line.\n")
    assert (result.state, unit.attempt) == ("completed", 2)
    first, second = seen(marks)
    assert (first[0], second[0]) == ("", "s1")
    assert first[1] == second[1] == f"{world.root}/.interlock/worktrees/{result.run_id}/a.solo/1"
    kept = world.git("show", f"refs/interlock/{result.run_id}/a.solo/1:file").splitlines()
    assert kept == ["one", "more"], "what the first attempt left is kept"
    assert (second[2], second[3:]) == (world.git("rev-parse", "HEAD"), ["2", "1"])
    assert world.git("show", f"{unit.left}:file").splitlines() == ["one", "more"]
    assert world.registered() == [first[1]]
    folder = Path(first[1]).parent
    assert [path.name for path in folder.iterdir()] == ["1"]


def test_a_cold_retry_begins_at_the_base_in_a_worktree_of_its_own(world: World, marks: Path) -> None:
    agent(world, FAIL_ONCE)
    cold = WARM.replace("session: continue, ", "")
    result, _, (unit,) = world.run(f"  - {{ id: a, isolation: worktree, {cold} }}\n", "## a\nAdd a line.\n")
    assert result.state == "completed"
    first, second = seen(marks)
    assert (second[0], second[2:]) == ("", [world.git("rev-parse", "HEAD"), "2", "1"])
    assert (first[1][-2:], second[1][-2:]) == ("/1", "/2")
    assert world.git("show", f"{unit.left}:file").splitlines() == ["one", "more"]


def test_warm_loops_go_on_at_one_path_and_leave_nothing_beside_it(world: World, marks: Path) -> None:
    agent(world)
    warm = "retry: { max: 0, session: continue }, gate: { max_loops: 4, check: 'test $(wc -l < file) -ge 4' }"
    result, _, units = world.run(f"  - {{ id: a, isolation: worktree, {warm} }}\n", "## a\nAdd a line.\n")
    assert result.state == "completed"
    work = [unit for unit in units if unit.kind == "work"]
    assert [line[3:] for line in seen(marks)] == [["2", "1"], ["3", "2"], ["4", "3"]]
    assert {line[1] for line in seen(marks)} == {unit.worktree for unit in work} == set(world.registered())
    assert [unit.base for unit in work[1:]] == [unit.left for unit in work[:-1]]
    assert list(Path(work[0].worktree).parent.iterdir()) == [Path(work[0].worktree)]
    assert world.git("rev-list", "--count", f"HEAD..{work[-1].left}") == "3"


def test_what_a_person_changed_between_two_loops_is_moved_aside_and_kept_by_name(world: World, marks: Path) -> None:
    """The next loop begins at what the agent left, and the person's edits are in a leftover and under its ref."""
    agent(world)
    warm = "retry: { max: 0, session: continue }, gate: { max_loops: 3, approval: true }"
    result, _, (unit, _) = world.run(f"  - {{ id: a, isolation: worktree, {warm} }}\n", "## a\nAdd a line.\n")
    assert (result.state, result.reason) == ("blocked", "approval_needed")
    (Path(unit.worktree) / "file").write_text("by hand\n")
    world.reject(result.run_id, "a", "once more")
    result, _, _ = world.again(result.run_id)
    assert [line[3] for line in seen(marks)] == ["2", "3"]
    aside = f"{unit.worktree}.leftover-1"
    assert (Path(aside) / "file").read_text() == "by hand\n"
    assert world.git("show", f"refs/interlock/{result.run_id}/a.solo/1.leftover-1:file") == "by hand"
    listed = {tree.attempt: (tree.files, tree.path) for tree in world.kept()}
    assert listed["1.leftover-1"] == (1, aside)


JUDGE = """#!/bin/sh
cat >> {root}/asked.sh
if [ -e {root}/judged.sh ]; then yes=true; else yes=false; touch {root}/judged.sh; fi
printf '{{"complete": %s, "missing": [], "feedback": "again"}}' $yes
"""


def test_a_judge_is_asked_about_a_merge_and_a_rejection_loops_its_agents(world: World) -> None:
    agent(world)
    judge = world.root / "judge.sh"
    judge.write_text(JUDGE.format(root=world.root))
    judge.chmod(0o755)
    config = world.root / "interlock.toml"
    more = f'[engines.judge]\nkind = "agent"\nagent = "command"\ncommand = ["{judge}"]\n'
    config.write_text(config.read_text().replace("[run]\n", '[run]\njudge = "judge"\n') + more)
    merge = "map: { over: steps.list.output, reducer: merge }, gate: { max_loops: 2 }"
    steps = f"{LIST}  - {{ id: m, isolation: worktree, {merge} }}\n"
    result, artifacts, units = world.run(steps, "## m\nAdd a line.\n### gate\nIs it merged?\n")
    assert result.state == "completed", result
    assert [(unit.id, unit.verdict) for unit in units if unit.kind == "judge"] == [
        ("m.gate:l1.j1", "reject"),
        ("m.gate:l2.j1", "pass"),
    ]
    assert [unit.id for unit in units if unit.kind == "merge"] == ["m.merge:l1", "m.merge:l2"]
    made = artifacts["m"]
    assert made["branch"] == f"interlock/{result.run_id}/m-l2"
    assert world.git("show", f"{made['branch']}:file").splitlines() == ["one", "more", "more"]
    assert made["tree"] in (world.root / "asked.sh").read_text()


def test_an_approval_of_a_merge_holds_for_what_was_merged(world: World) -> None:
    steps = LIST
    steps += "  - { id: m, isolation: worktree, map: { over: steps.list.output, reducer: merge }, "
    steps += "run: 'touch $INTERLOCK_ITEM', gate: { check: 'test ! -e y -a ! -e z', approval: true } }\n"
    result, _, units = world.run(steps)
    assert (result.state, result.reason) == ("blocked", "approval_needed")
    merges = [unit for unit in units if unit.kind == "merge"]
    branch = world.git("rev-parse", f"interlock/{result.run_id}/m")
    world.approve(result.run_id, "m")
    result, artifacts, units = world.again(result.run_id)
    assert result.state == "completed"
    assert [unit.dispatch for unit in units if unit.kind == "merge"] == [unit.dispatch for unit in merges]
    assert world.git("rev-parse", artifacts["m"]["branch"]) == branch
    assert [entry["item"] for entry in artifacts["m"]["merged"]] == ["x"]
    assert [entry["item"] for entry in artifacts["m"]["rejected"]] == ["y", "z"]


def test_a_rejected_merge_of_commands_fails_and_its_branch_stays_to_be_looked_at(world: World) -> None:
    steps = LIST
    steps += "  - { id: m, isolation: worktree, map: { over: steps.list.output, reducer: merge }, "
    steps += "run: 'touch $INTERLOCK_ITEM', gate: { approval: true } }\n"
    result, _, _ = world.run(steps)
    world.reject(result.run_id, "m", "no")
    result, _, _ = world.again(result.run_id)
    assert result.state == "failed"
    assert "x" in world.git("ls-tree", "--name-only", f"interlock/{result.run_id}/m").splitlines()


def test_each_check_of_a_map_runs_in_what_its_own_item_left(world: World) -> None:
    steps = LIST
    steps += "  - { id: m, isolation: worktree, on_error: continue, map: { over: steps.list.output }, "
    steps += "run: '[ $INTERLOCK_ITEM = z ] || touch $INTERLOCK_ITEM.txt', "
    check = f"ls *.txt >> {world.root}/mark 2>/dev/null || true; pwd >> {world.root}/mark; test $INTERLOCK_ITEM != y"
    steps += f"gate: {{ each: true, check: '{check}' }} }}\n"
    result, _, units = world.run(steps)
    assert (result.state, result.reason) == ("blocked", "gate_rejected")
    checks = {json.loads(unit.item): unit.verdict for unit in units if unit.kind == "gate"}
    assert checks == {"x": "pass", "y": "reject", "z": "pass"}
    lines = (world.root / "mark").read_text().splitlines()
    kept = {json.loads(unit.item): unit.worktree for unit in units if unit.kind == "work" and unit.item is not None}
    assert {"x.txt", "y.txt", kept["x"], kept["y"]} <= set(lines)
    # the one that changed nothing is gone: its check has a worktree of its own, at where it began
    assert len([line for line in lines if line.startswith("/")]) == 3
    assert set(world.registered()) == {kept["x"], kept["y"]}


def test_an_item_rejected_by_its_check_loops_from_what_it_left_and_the_others_stay(world: World, marks: Path) -> None:
    agent(world)
    steps = LIST
    check = "test $INTERLOCK_ITEM != y || test $(wc -l < file) -ge 3"
    steps += "  - { id: m, isolation: worktree, map: { over: steps.list.output }, "
    steps += f"gate: {{ each: true, max_loops: 3, check: '{check}' }} }}\n"
    result, _, units = world.run(steps, "## m\nAdd a line.\n")
    assert result.state == "completed"
    work = [unit for unit in units if unit.kind == "work" and unit.item is not None]
    assert [(json.loads(unit.item), unit.loop) for unit in work] == [("x", 1), ("y", 1), ("z", 1), ("y", 2)]
    assert work[3].base == work[1].left
    assert sorted(line[3] for line in seen(marks)) == ["2", "2", "2", "3"]
