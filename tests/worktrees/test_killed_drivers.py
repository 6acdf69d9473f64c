"""Drivers of real processes killed in the middle: what units wrote is all there, and nothing stands unlisted."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.worktrees.conftest import World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
ITEMS = [str(number) for number in range(1, 11)]
STEPS = f"""  - id: mend
    map: {{ over: params.items, concurrency: 4, reducer: merge }}
    isolation: worktree
    run: >-
      echo "$INTERLOCK_ITEM" > "item-$INTERLOCK_ITEM"; sleep 0.05;
      echo "$INTERLOCK_ITEM $INTERLOCK_ATTEMPT" >> {{log}}
    gate: {{ check: sleep 0.05 }}
params:
  items: {{ type: array, default: {json.dumps(ITEMS)} }}
"""
MOST_KILLS = 8


def interlock(world: World, *words: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    return subprocess.Popen(
        [sys.executable, "-m", "interlock", *words],
        cwd=world.root,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def asked(world: World, *words: str) -> str:
    done = interlock(world, *words)
    said, _ = done.communicate(timeout=60)
    assert done.returncode == 0, said
    return said


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_drivers_killed_at_random_lose_no_change_and_leave_no_worktree_unlisted(
    world: World, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - moments of death, not secrets
    log = tmp_path_factory.mktemp("log") / "written"
    path = world.workflow(STEPS.replace("{log}", str(log)))
    driver = interlock(world, "run", path.name)
    for _ in range(MOST_KILLS):
        time.sleep(chance.uniform(0.15, 0.6))
        driver.kill()
        driver.communicate(timeout=60)
        known = json.loads(asked(world, "list", "--json"))
        driver = interlock(world, "run", known[0]["id"] if known else path.name)
    said, _ = driver.communicate(timeout=120)
    run = json.loads(asked(world, "list", "--json"))[0]
    assert run["state"] == "completed", said

    artifact = json.loads(asked(world, "status", run["id"], "--json"))["steps"][0]["artifact"]
    assert [entry["item"] for entry in artifact["merged"]] == ITEMS
    assert (artifact["conflicts"], artifact["rejected"]) == ([], [])
    merged = world.git("ls-tree", "--name-only", artifact["tree"]).splitlines()
    assert sorted(merged) == sorted([".gitignore", "file", *(f"item-{item}" for item in ITEMS)])

    kept = set()
    for ref in world.git("for-each-ref", "--format=%(refname)", "refs/interlock").splitlines():
        names = world.git("ls-tree", "--name-only", ref).splitlines()
        kept |= {(name.removeprefix("item-"), ref.rpartition("/")[2]) for name in names if name.startswith("item-")}
    written = {tuple(line.split()) for line in log.read_text(encoding="utf-8").splitlines()}
    assert written <= kept

    listed = {entry["path"] for entry in json.loads(asked(world, "worktrees", "list", "--json"))}
    assert set(world.registered()) <= listed
    assert world.git("status", "--porcelain") == ""
    assert world.git("stash", "list") == ""


def test_two_runs_at_once_in_one_project_are_not_in_each_others_way(world: World) -> None:
    path = world.workflow(
        STEPS.replace("{log}", "/dev/null").replace('"$INTERLOCK_ITEM $INTERLOCK_ATTEMPT"', "x").replace("0.05", "0.01")
    )
    drivers = [interlock(world, "run", path.name) for _ in range(2)]
    said = [driver.communicate(timeout=200)[0] for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0], said
    runs = json.loads(asked(world, "list", "--json"))
    assert [run["state"] for run in runs] == ["completed", "completed"]
    trees = {world.git("rev-parse", f"interlock/{run['id']}/mend^{{tree}}") for run in runs}
    assert len(trees) == 1
    assert (world.git("status", "--porcelain"), world.git("stash", "list")) == ("", "")
