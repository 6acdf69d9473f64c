"""A run with child runs is replayed with them: their answers, verdicts and ends, and faults where they were asked for."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.driver.family_world import ASK, FLAKY, MAP, ONE, SAY, World, mend
from tests.replay.checking import exported, same

import interlock
from interlock.driver.forking import ForkOrder
from interlock.driver.params import ParamsInput
from interlock.errors import UsageError
from interlock.model.canon import dumps, item_digest

A, B = (f"each:{item_digest(dumps(name))}" for name in "ab")
TWO = MAP.replace("[a, b, c]", "[a, b]")
NAME = SAY.replace("word", "name").replace("WORD", "NAME")


def changed(world: World, **workflows: str) -> Path:
    world.write(**workflows)
    return world.folder / "parent.md"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_child_runs_are_replayed_without_doing_anything_again(world: World) -> None:
    world.write(parent=MAP.replace("ON_ERROR", "continue"), child=FLAKY)
    mend(world, "a", "c")
    run = world.run().run_id
    before = world.lines()
    found = world.app.replay(run)
    same(found)
    assert found.answered == 8
    assert {unit.id: unit.state for unit in found.units}[f"{B}/flaky:solo"] == "failed"
    assert world.lines() == before
    assert len(world.children(run)) == 3


def test_children_of_children_are_replayed(world: World) -> None:
    middle = "steps:\n  - { id: m, uses: ./child.md, with: { word: deep } }"
    world.write(parent="steps:\n  - { id: top, uses: ./middle.md }", middle=middle, child=SAY)
    found = world.app.replay(world.run().run_id)
    same(found)
    assert found.steps[0].artifact == b'"deep!"'
    assert [unit.id for unit in found.units][-1] == "top:solo/m:solo/again:solo"


def test_a_child_that_was_tried_again_is_replayed_without_waiting(world: World) -> None:
    retry = "retry: { max: 2, on: [child_failed], backoff: { initial: 20ms } }"
    parent = f"steps:\n  - {{ id: below, uses: ./child.md, {retry} }}"
    child = "steps:\n  - { id: once, run: 'echo once >> said' }\n  - { id: f, run: 'echo try >> said; test $(grep -c try said) = 3' }"
    world.write(parent=parent, child=child)
    found = world.app.replay(world.run().run_id)
    same(found)
    assert found.answered == 4


def test_a_backoff_within_a_child_is_not_waited_for(world: World) -> None:
    child = "steps:\n  - { id: s, run: echo ok, retry: { max: 1, on: [timeout], backoff: { initial: 3h } } }"
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }", child=child)
    run = world.run().run_id
    found = world.app.replay(run, faults=["timeout@below>s"])
    assert (found.state, found.faulted) == ("completed", {"below:solo/s:solo": "timeout@below>s"})
    assert [unit.attempt for unit in found.units] == [1, 2]


def test_a_failed_run_that_was_resumed_is_replayed_in_its_children_too(world: World) -> None:
    world.write(parent=MAP.replace("ON_ERROR", "fail").replace("[a, b, c]", "[a]"), child=FLAKY)
    run = world.run().run_id
    same(world.app.replay(run))
    mend(world, "a")
    world.app.resume(run)
    found = world.app.replay(run)
    same(found)
    assert found.state == "completed"


def test_a_step_that_failed_for_good_ends_its_other_children_as_it_did(world: World) -> None:
    world.write(parent=MAP.replace("ON_ERROR", "fail").replace("concurrency: 2", "concurrency: 1"), child=FLAKY)
    mend(world, "a", "c")
    found = world.app.replay(world.run().run_id)
    same(found)
    assert found.state == "failed"


def test_children_that_never_had_their_turn_end_nothing_otherwise(world: World) -> None:
    parent = (
        MAP.replace("ON_ERROR", "fail").replace(", concurrency: 2", "").replace("[a, b, c]", "[a, b, c, d, e, f, g]")
    )
    world.write(parent=parent, child=FLAKY)
    run = world.run().run_id
    assert len(world.children(run)) < 7, "the default is to run some of them at a time"
    same(world.app.replay(run))


def test_verdicts_that_people_gave_in_children_are_given_there(world: World) -> None:
    world.write(parent=TWO.replace("ON_ERROR", "fail"), child=ASK)
    run = world.run().run_id
    same(world.app.replay(run))
    for child in world.children(run):
        world.app.approve(child.id)
    assert world.app.run_id(run).state == "completed"
    found = world.app.replay(run)
    same(found)
    assert found.state == "completed"


def test_a_rejected_child_is_replayed_as_one(world: World) -> None:
    world.write(parent=TWO.replace("ON_ERROR", "continue"), child=ASK)
    run = world.run().run_id
    first, second = world.children(run)
    world.app.approve(first.id)
    world.app.reject(second.id, note="no")
    world.app.run_id(run)
    same(world.app.replay(run))


def test_loops_that_were_granted_to_a_child_are_granted_again(world: World) -> None:
    (world.folder / "interlock.toml").write_text(
        '[run]\nengine = "bot"\n[engines.bot]\nkind = "agent"\nagent = "command"\ncommand = ["sh", "bot.sh"]\n'
    )
    (world.folder / "bot.sh").write_text("cat >/dev/null\necho x >> asked\nwc -l < asked\n")
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }")
    check = 'grep -q "\\\\b[34]\\\\b" "$INTERLOCK_CONTEXT"'
    (world.folder / "child.md").write_text(
        f"---\nsteps:\n  - id: say\n    gate: {{ check: '{check}', max_loops: 1 }}\n---\n## say\nSay it.\n"
    )
    world.app.close()
    world.app = interlock.open(world.folder)
    run = world.run().run_id
    assert world.app.store.run(run).state == "blocked"
    assert world.app.resume(run, loops=2).state == "completed"
    found = world.app.replay(run)
    same(found)
    assert found.state == "completed"


def test_a_child_whose_time_was_over_is_replayed_so(world: World) -> None:
    parent = (
        "steps:\n  - { id: below, uses: ./child.md, timeout: 2s, on_error: continue }\n  - { id: after, run: echo x }"
    )
    child = "steps:\n  - { id: a, run: echo a }\n  - { id: b, run: sleep 300 }"
    world.write(parent=parent, child=child)
    run = world.run().run_id
    assert [unit.reason for unit in world.app.store.units(run)][:1] == ["timeout"]
    same(world.app.replay(run))


def test_a_difference_within_a_child_is_told_with_its_path(world: World) -> None:
    world.write(parent=ONE, child=SAY)
    run = world.run().run_id
    found = world.app.replay(run, workflow=changed(world, child=SAY.replace('echo "$', 'echo "so: $')))
    assert (found.differences, found.changed) == ((), ("below:solo", "below:solo/say:solo"))
    child = SAY + "  - { id: more, run: echo more }\n"
    found = world.app.replay(run, workflow=changed(world, child=child))
    assert found.not_recorded == {
        "below:solo/more:solo": "the recorded run has no unit below:solo/more:solo",
    }
    assert [text.partition(";") for text in found.differences[:3]] == [
        (
            "step below:solo/more: no such step, now failed (dispatch_error)",
            ";",
            " first at unit below:solo/more:solo, which is not recorded",
        ),
        ("run below:solo: completed (ok), now failed (failed)", "", ""),
        (
            "step below: completed, now failed (child_failed)",
            ";",
            " first at unit below:solo: completed, now failed (child_failed)",
        ),
    ]
    assert found.exit_code == 1


def test_a_child_that_the_record_does_not_have_is_not_recorded(world: World) -> None:
    world.write(parent=TWO.replace("ON_ERROR", "continue"), child=NAME)
    run = world.run().run_id
    found = world.app.replay(run, params=ParamsInput(values={"names": ["a", "new"]}))
    new = f"each:{item_digest(dumps('new'))}"
    assert found.not_recorded == {new: f"the recorded run has no unit {new}"}
    assert found.outcome == "degraded"


def test_a_step_that_ran_no_children_in_the_record_has_no_answers_for_them(world: World) -> None:
    parent = TWO.replace("ON_ERROR", "continue")
    plain = parent.replace("uses: ./child.md\n    with: { name: item }", "run: echo x")
    world.write(parent=plain, child=NAME)
    run = world.run().run_id
    found = world.app.replay(run, workflow=changed(world, parent=parent))
    assert found.not_recorded[A] == f"the recorded run has no child run of unit {A}"


def test_a_child_that_was_never_ended_differs_and_hinders_nothing(world: World) -> None:
    world.write(parent=ONE, child=SAY)
    run = world.run().run_id
    with sqlite3.connect(world.app.project.journal) as db:
        db.execute("UPDATE run SET state = 'active', outcome = NULL, ended_at = NULL WHERE parent IS NOT NULL")
    found = world.app.replay(run)
    assert found.differences == ("run below:solo: active, now completed (ok)",)


def test_a_fork_with_children_that_it_took_over_is_replayed(world: World) -> None:
    world.write(parent=TWO.replace("ON_ERROR", "continue"), child=FLAKY)
    mend(world, "a")
    first = world.run().run_id
    mend(world, "b")
    fork = world.app.fork(ForkOrder(run=first)).run_id
    assert len(world.children(fork)) == 1
    same(world.app.replay(fork))
    with exported(world.app, fork) as app:
        same(app.replay(fork))


def test_faults_strike_within_a_child_and_in_its_place(world: World) -> None:
    world.write(parent=TWO.replace("ON_ERROR", "continue"), child=NAME)
    run = world.run().run_id
    found = world.app.replay(run, faults=["timeout@each>say:2"])
    assert found.faulted == {f"{B}/say:solo": "timeout@each>say:2"}
    assert (found.outcome, found.exit_code) == ("degraded", 6)
    found = world.app.replay(run, faults=["killed@each:b"])
    assert (found.faulted, found.outcome) == ({B: "killed@each:b"}, "degraded")
    assert [unit.reason for unit in found.units if unit.id == B] == ["killed"]
    assert not [unit.id for unit in found.units if unit.id.startswith(f"{B}/")], "its run was not opened"


def test_a_fault_strikes_in_the_child_of_one_item(world: World) -> None:
    middle = (
        "params: { name: {} }\nsteps:\n  - { id: m, map: { over: params.l }, uses: ./child.md, with: { name: item } }"
    )
    middle = middle.replace("{ name: {} }", '{ name: {}, l: { type: array, default: ["x]>:y", z] } }')
    world.write(parent=TWO.replace("ON_ERROR", "continue").replace("child", "middle"), middle=middle, child=NAME)
    run = world.run().run_id
    for fault, unit in [
        ("timeout@each[b]>m[z]>say", f"{B}/m:{item_digest(dumps('z'))}/say:solo"),
        ('timeout@each["b"]>m>say:2', f"{B}/m:{item_digest(dumps('z'))}/say:solo"),
        (r'timeout@each[b]>m["x]\u003e:y"]>say:1', f"{B}/m:{item_digest(dumps('x]>:y'))}/say:solo"),
        ("killed@each[b]>m:z", f"{B}/m:{item_digest(dumps('z'))}"),
    ]:
        found = world.app.replay(run, faults=[fault])
        assert (found.faulted, found.faults_unused) == ({unit: fault}, {})
    found = world.app.replay(run, faults=["timeout@each[q]>m>say"])
    said = "nothing was dispatched at 'each>m>say' for the items above it"
    assert found.faults_unused == {"timeout@each[q]>m>say": said}


@pytest.mark.parametrize(
    ("fault", "message", "hint"),
    [
        ("timeout@each>sya", "./child.md has no step 'sya' that does work", "did you mean 'say'?"),
        ("timeout@eahc>say", "the workflow has no step 'eahc' that runs a child workflow", "did you mean 'each'?"),
        ("timeout@each>say>x", "./child.md has no step 'say' that runs a child workflow", "write REASON@STEP"),
        ("timeout@each[a]>say>x", "./child.md has no step 'say' that runs a child workflow", "write REASON@STEP"),
        ("timeout@one[a]>say", "step 'one' has no items: it is no map", "write one>STEP"),
        ("timeout@each>say.check", "step 'say' has no 'check' that could fail", "use 'say'"),
    ],
)
def test_a_fault_at_a_place_that_no_child_has_is_refused(world: World, fault: str, message: str, hint: str) -> None:
    one = "  - { id: one, uses: ./child.md, with: { name: x } }\n"
    world.write(parent=TWO.replace("ON_ERROR", "continue") + one, child=NAME)
    run = world.run().run_id
    with pytest.raises(UsageError) as caught:
        world.app.replay(run, faults=[fault])
    assert caught.value.message == message
    assert (caught.value.hint or "").startswith(hint)
