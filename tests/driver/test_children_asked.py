"""What people ask of child runs: answered at once, also where the child has ended or its parent is being driven."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.driver.family_world import ASK, FLAKY, MAP, PATIENCE_S, World, drive_elsewhere, until

import interlock
from interlock.cli.reading import read_next, read_run
from interlock.errors import UsageError

BOT = '[run]\nengine = "bot"\n[engines.bot]\nkind = "agent"\nagent = "command"\ncommand = ["sh", "bot.sh"]\n'
LOOPED = """---
steps:
  - id: say
    gate: { check: 'grep -q "\\b[34]\\b" "$INTERLOCK_CONTEXT"', max_loops: 1 }
---
## say
Say it.
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def refusal(world: World, run_id: str) -> str:
    """Return why the approval was refused, which doesn't take long."""
    began = time.monotonic()
    with pytest.raises(UsageError) as caught:
        world.app.approve(run_id)
    assert time.monotonic() - began < 10
    assert caught.value.code == "request-refused"
    return str(caught.value)


def test_nothing_can_be_asked_of_a_child_that_is_completed(world: World) -> None:
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }", child=ASK)
    first = world.run()
    (child,) = world.children(first.run_id)
    world.app.approve(child.id)
    world.app.run_id(first.run_id)
    assert refusal(world, child.id) == "the run is completed"


def test_nothing_can_be_asked_of_a_child_that_failed(world: World) -> None:
    parent = MAP.replace("ON_ERROR", "continue").replace("[a, b, c]", "[a]")
    world.write(parent=parent + "  - { id: after, run: 'test -e good', gate: { approval: true } }\n", child=FLAKY)
    first = world.run()
    (child,) = world.children(first.run_id)
    assert (
        refusal(world, child.id) == f"run {first.run_id} above it failed; reopen that: interlock resume {first.run_id}"
    )
    (world.folder / "good").touch()
    assert world.app.resume(first.run_id).state == "blocked"
    (child,) = world.children(first.run_id)
    said = f"the run failed, and goes on only if it is tried again with run {first.run_id}"
    assert (child.state, refusal(world, child.id)) == ("failed", said)


def test_nothing_can_be_asked_below_a_child_that_failed(world: World) -> None:
    middle = (
        "steps:\n  - { id: low, needs: [], uses: ./child.md }\n"
        "  - { id: bad, needs: [], run: 'until test -e said; do sleep 0.01; done; sleep 0.3; exit 1' }"
    )
    parent = "steps:\n  - { id: top, uses: ./middle.md, on_error: continue }\n  - { id: end, run: echo x, gate: { approval: true } }"
    world.write(parent=parent, middle=middle, child=ASK)
    first = world.run()
    (middle_run,) = world.children(first.run_id)
    (lowest,) = world.children(middle_run.id)
    said = f"run {middle_run.id} above it failed, and goes on only if it is tried again with run {first.run_id}"
    assert (first.state, refusal(world, lowest.id)) == ("blocked", said)


def commands(world: World, run_id: str) -> list[str]:
    return [found.command for found in read_next(world.app, read_run(world.app.store, run_id))]


def test_what_would_be_refused_below_a_run_that_has_ended_is_not_offered(world: World) -> None:
    bad = "  - { id: bad, needs: [], run: 'until test -e said; do sleep 0.01; done; sleep 0.3; exit 1' }\n"
    world.write(parent="steps:\n  - { id: top, needs: [], uses: ./middle.md }\n" + bad, child=ASK)
    world.write(middle="steps:\n  - { id: low, uses: ./child.md }")
    first = world.run()
    (middle,) = world.children(first.run_id)
    (lowest,) = world.children(middle.id)
    assert (first.state, middle.state, lowest.state) == ("failed", "blocked", "blocked")
    resume = f"interlock resume {first.run_id}"
    assert commands(world, first.run_id) == [
        resume,
        f"interlock fork {first.run_id}",
        f"interlock units {first.run_id} --state failed",
    ]
    assert commands(world, middle.id) == commands(world, lowest.id) == [resume]
    world.write(middle="steps:\n  - { id: low, needs: [], uses: ./child.md }\n" + bad)
    (world.folder / "said").unlink()
    world.write(
        parent="steps:\n  - { id: top, uses: ./middle.md, on_error: continue }\n  - { id: end, run: echo x, gate: { approval: true } }"
    )
    second = world.run()
    (middle,) = world.children(second.run_id)
    (lowest,) = world.children(middle.id)
    assert (second.state, middle.state, lowest.state) == ("blocked", "failed", "blocked")
    assert commands(world, lowest.id) == [f"interlock status {second.run_id}"]


def test_a_live_driver_answers_for_a_child_that_has_ended(world: World) -> None:
    parent = (
        "steps:\n  - { id: below, uses: ./child.md }\n  - { id: busy, run: 'until test -e go; do sleep 0.02; done' }"
    )
    world.write(parent=parent, child="steps:\n  - { id: s, run: echo x }")
    driver = drive_elsewhere(world)
    until(lambda: [row.state for run in world.app.store.runs() for row in world.children(run.id)] == ["completed"])
    (run,) = world.app.store.runs()
    assert refusal(world, world.children(run.id)[0].id) == "the run is completed"
    (world.folder / "go").touch()
    assert driver.wait(PATIENCE_S) == 0


def test_loops_granted_to_a_run_under_way_reach_its_children(world: World) -> None:
    (world.folder / "interlock.toml").write_text(BOT, encoding="utf-8")
    (world.folder / "bot.sh").write_text("cat >/dev/null\necho x >> asked\nwc -l < asked\n", encoding="utf-8")
    (world.folder / "child.md").write_text(LOOPED, encoding="utf-8")
    busy = "  - { id: busy, needs: [], run: 'until test -e go; do sleep 0.02; done' }"
    world.write(parent=f"steps:\n  - {{ id: below, needs: [], uses: ./middle.md }}\n{busy}")
    world.write(middle="steps:\n  - { id: m, uses: ./child.md }")
    world.app.close()
    world.app = interlock.open(world.folder)
    driver = drive_elsewhere(world)
    until(lambda: "blocked" in [row.state for row in world.app.store.runs(children=True) if row.workflow == "child.md"])
    (run,) = world.app.store.runs()
    assert world.app.resume(run.id, loops=2).exit_code == 0
    (world.folder / "go").touch()
    assert driver.wait(PATIENCE_S) == 0
    assert (world.app.store.run(run.id).state, len(world.lines("asked"))) == ("completed", 3)
