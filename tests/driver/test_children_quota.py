"""An engine without quota is left alone by a whole family, and taken up again by all of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.driver.family_world import MAP, World

import interlock

BOT = """
[run]
engine = "bot"
[engines.bot]
kind = "agent"
agent = "command"
output = "json"
command = ["sh", "bot.sh"]
"""
SAYS = """cat >/dev/null
echo x >> asked
if test -e back; then echo '{"text": "fine"}'; else echo '{"error": "usage limit reached UNTIL"}'; fi
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    (tmp_path / "interlock.toml").write_text(BOT, encoding="utf-8")
    world.app.close()
    world.app = interlock.open(tmp_path)
    world.write(parent=MAP.replace("ON_ERROR", "fail").replace("concurrency: 2", "concurrency: 1"))
    world.write(child="params: { name: {} }\nsteps:\n  - { id: m, uses: ./low.md }")
    (tmp_path / "low.md").write_text("---\nsteps:\n  - id: say\n---\n## say\nSay fine.\n", encoding="utf-8")
    return world


def test_one_call_is_enough_to_learn_that_there_is_no_quota(world: World) -> None:
    (world.folder / "bot.sh").write_text(SAYS.replace("UNTIL", f"|{int(time.time()) + 3600}"), encoding="utf-8")
    first = world.run()
    for found in (first, world.app.run_id(first.run_id)):
        assert (found.state, found.reason, world.lines("asked")) == ("waiting", "llm_quota", ["x"])
        assert [row.state for row in world.children(found.run_id)] == ["waiting"] * 3


def test_an_engine_of_which_nobody_knows_when_it_is_back_is_tried_by_the_next_run(world: World) -> None:
    (world.folder / "bot.sh").write_text(SAYS.replace("UNTIL", ""), encoding="utf-8")
    first = world.run()
    assert (first.state, first.reason, world.lines("asked")) == ("blocked", "llm_quota", ["x"])
    assert [row.state for row in world.children(first.run_id)] == ["blocked"] * 3
    assert world.app.run_id(first.run_id).state == "blocked"
    (world.folder / "back").touch()
    assert world.app.run_id(first.run_id).state == "completed"
    assert world.artifact(first.run_id, "each") == ["fine"] * 3
