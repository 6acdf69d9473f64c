"""What a driver that died had driven counts against ceilings as what one that left in peace had."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.driver.desk import HOST, RUN, Desk, real_plan

from interlock.app import open_project
from interlock.driver.clock import SystemClock
from interlock.driver.lease import fresh
from interlock.driver.lost_time import lost_ms
from interlock.store.base import Loaded
from interlock.testing.build import step

FLOW = f"""---
params: {{ numbers: {{ default: {[*range(40)]} }} }}
budget: {{ max_duration: 2s }}
steps:
  - id: work
    run: sleep 0.1
    map: {{ over: params.numbers, concurrency: 1 }}
---
"""
LEASE = fresh(RUN, 1, HOST, SystemClock())
# while its child works it has no events of its own
ABOVE = "---\nbudget: { max_duration: 2s }\nsteps:\n  - { id: all, uses: ./child.md }\n---\n"
PROGRAM = [sys.executable, "-c", "from interlock.cli.entry import main; main()"]


@pytest.mark.parametrize("child", [False, True])
def test_a_ceiling_of_time_holds_over_a_killed_driver(tmp_path: Path, *, child: bool) -> None:
    own = FLOW.replace("budget: { max_duration: 2s }\n", "") if child else FLOW
    (tmp_path / ("child.md" if child else "flow.md")).write_text(own, encoding="utf-8")
    if child:
        (tmp_path / "flow.md").write_text(ABOVE, encoding="utf-8")
    with subprocess.Popen([*PROGRAM, "run", "flow.md", "--json"], cwd=tmp_path, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        ended = 0
        while ended < 10:
            ended += json.loads(driver.stdout.readline())["type"] == "attempt_finished"
        driver.kill()
    done = subprocess.run([*PROGRAM, "run", "last"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    with open_project(tmp_path) as app:
        (run,) = app.store.runs()
        work = app.store.runs(children=True)[0] if child else run
        completed = sum(unit.state == "completed" for unit in app.store.units(work.id))
    assert "max_duration of 2s is used up" in (work.detail or run.detail)
    assert run.driven_ms >= 2_000
    # a driver that begins at nothing does twenty more
    assert 10 <= completed < 27


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    desk = Desk(tmp_path, real_plan(tmp_path, step("a")))
    try:
        return desk.store.load(RUN)
    finally:
        desk.close()


@pytest.mark.parametrize(
    ("last_at", "counted_at", "renewed_ms", "since_ms", "lost"),
    [
        (5_000, 1_000, 4_000, 1_000, 4_000),
        (5_000, 1_000, 9_000, 1_000, 8_000),
        (5_000, 4_000, 4_500, 1_000, 1_000),
        (5_000, 1_000, 3_000, 3_000, 2_000),
        # nothing happened under a driver that died at once
        (5_000, 1_000, 6_000, 6_000, 0),
        # the clock was set back
        (500, 1_000, 400, 1_000, 0),
    ],
)
def test_what_is_lost_ends_where_the_run_was_heard_of_last(
    loaded: Loaded, last_at: int, counted_at: int, renewed_ms: int, since_ms: int, lost: int
) -> None:
    loaded = msgspec.structs.replace(loaded, last_at=last_at, counted_at=counted_at)
    lease = msgspec.structs.replace(LEASE, renewed_ms=renewed_ms, since_ms=since_ms)
    assert lost_ms(loaded, lease) == lost
    left = max(0, last_at - max(counted_at, since_ms))
    assert lost_ms(loaded, msgspec.structs.replace(lease, released=True)) == left
    assert lost_ms(loaded, None) == 0
    ended = msgspec.structs.replace(loaded, run=msgspec.structs.replace(loaded.run, state="blocked"))
    assert lost_ms(ended, lease) == 0
