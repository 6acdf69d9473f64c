"""The time that a child may take: one attempt's, over all drivers that go on with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.driver.family_world import World

from interlock.app import App
from interlock.driver.clock import SystemClock
from interlock.model import events as ev
from interlock.model.run import Snapshot


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_childs_time_goes_on_with_the_next_driver(world: World) -> None:
    world.write(parent="steps:\n  - { id: below, uses: ./child.md, timeout: 3s }")
    world.write(child="steps:\n  - { id: s, run: sleep 60 }")
    first = world.run(timeout_s=2)
    assert first.exit_code == 130
    result = world.app.run_id(first.run_id, timeout_s=30)
    (child,) = world.children(first.run_id)
    assert (result.reason, child.reason) == ("timeout", "timeout")
    assert child.driven_ms < 4_500, "not the whole time again"


def test_a_childs_next_attempt_has_its_whole_time_under_the_next_driver_too(world: World) -> None:
    retry = "retry: { max: 1, on: [child_failed], backoff: { initial: 1ms } }"
    world.write(parent=f"steps:\n  - {{ id: below, uses: ./child.md, timeout: 4s, {retry} }}")
    run = "echo x >> said; case $(grep -c x said) in 1) sleep 2; exit 1;; 2) touch second; sleep 60;; *) sleep 2;; esac"
    world.write(child=f"steps:\n  - {{ id: s, run: '{run}' }}")
    first = world.run(timeout_s=3)
    assert (first.exit_code, (world.folder / "second").exists()) == (130, True)
    assert world.app.run_id(first.run_id, timeout_s=30).state == "completed"
    (child,) = world.children(first.run_id)
    assert child.driven_ms > 4_000, "its attempts together took longer than one may"


class FastClock(SystemClock):
    """A lease is renewed every second."""

    def boot_ms(self) -> int:
        return super().boot_ms() * 30


def test_a_childs_time_is_journaled_at_each_renewal(world: World) -> None:
    world.write(parent="steps:\n  - { id: below, uses: ./child.md, timeout: 1h }")
    world.write(child="steps:\n  - { id: s, run: sleep 1.6 }")
    world.app = App(world.app.project, world.app.config, clock=FastClock())
    noted: list[int] = []

    def observe(events: Sequence[ev.Event], snap: Snapshot) -> None:
        if snap.above is not None:
            noted.extend(e.driven_ms for e in events if isinstance(e, ev.RunMoved) and e.state == "active")

    world.run(on_event=observe)
    assert noted
    assert noted[0] > 900
