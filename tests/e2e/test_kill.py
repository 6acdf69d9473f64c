"""A driver that is killed while an agent works leaves no process behind, and the next run finishes the work once."""

from __future__ import annotations

import signal
from collections.abc import Mapping

import pytest
from tests.e2e.agents import ALL, Agent
from tests.e2e.world import World, commands

ALLOW: Mapping[str, list[str]] = {
    "claude": ["--allowedTools", "Bash"],
    "gemini": ["--approval-mode", "yolo"],
    "qwen": ["--approval-mode", "yolo"],
}
"""What an agent's engine needs to let it use its shell without asking."""
NATIVE = sorted(name for name in ALL if not name.startswith("acp-"))


@pytest.mark.parametrize("agent", [*NATIVE, "acp-opencode"], indirect=True)
def test_a_killed_driver_leaves_no_agent_and_no_tool_of_its_and_the_next_run_finishes(
    agent: Agent, world: World
) -> None:
    world.engines({"e": world.agent(agent, args=ALLOW.get(agent.name, []))}, engine="e")
    # told apart from every other sleeper of this machine, in whatever environment its sandbox starts it
    sleep = f"import time; time.sleep({1_000_000 + world.server.port})"
    tool = {"name": "shell", "input": {agent.shell_input: f"python3 -c '{sleep}'", "description": "wait"}}
    world.server.script({"match": "DO-IT", "tool": tool, "times": 9})
    world.workflow("---\ntype: workflow\nsteps:\n  - id: work\n---\n## work\nDO-IT\n")
    with world.driving("run", "flow.md") as driver:
        world.until(lambda: sleeping(sleep), "the agent's tool")
        driver.send_signal(signal.SIGKILL)
    world.until(lambda: not (world.processes() or sleeping(sleep)), "the end of all that was started")
    world.server.reset()
    world.server.script(default={"text": "done"})
    world.call("run", world.status()["run"]["id"])
    unit = world.units()["work:solo"]
    assert (unit["state"], unit["attempt"], unit["result"]) == ("completed", 2, "done")


def sleeping(code: str) -> dict[int, str]:
    return commands(lambda process: code in process.cmdline())
