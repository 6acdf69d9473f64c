"""An agent that was refused a tool has not done its work, whatever it says: the attempt fails and names the tool."""

from __future__ import annotations

import json

import msgspec
import pytest
from tests.e2e.agents import ALL, Agent
from tests.e2e.world import World


class Refusal(msgspec.Struct, frozen=True):
    """How an agent is kept from its shell, and what it calls that: the tool, or what it was to do."""

    tool: str
    args: tuple[str, ...] = ()
    project: str = ""
    """Its settings within the project, as `path: text`."""


OPENCODE = "opencode.json: " + json.dumps({"permission": {"bash": "ask"}})
REFUSALS = {
    "claude": Refusal("Bash"),
    "opencode": Refusal("bash", project=OPENCODE),
    "copilot": Refusal("bash", ("--allow-tool", "write")),
    "acp-gemini": Refusal("python3 -c"),
    "acp-qwen": Refusal("python3 -c"),
    "acp-copilot": Refusal("`look`"),
}
# codex is kept from nothing: its sandbox lets the tool fail; gemini and qwen do not offer what they would refuse


@pytest.mark.parametrize("agent", sorted(REFUSALS), indirect=True)
def test_a_refused_tool_fails_the_attempt_and_is_named(agent: Agent, world: World) -> None:
    assert agent in ALL.values()
    refusal = REFUSALS[agent.name]
    if refusal.project:
        name, _, text = refusal.project.partition(": ")
        (world.folder / name).write_text(text)
    world.engines({"e": world.agent(agent, args=list(refusal.args))}, engine="e")
    tool = {
        "name": "shell",
        "input": {agent.shell_input: "python3 -c 'print(); open(chr(112), chr(119))'", "description": "look"},
    }
    world.server.script({"match": "any:DO-IT", "tool": tool, "text": "All done.", "times": 9})
    world.workflow(
        "---\ntype: workflow\ndefaults: { timeout: 60s, idle_timeout: 20s }\nsteps:\n  - id: work\n---\n## work\nDO-IT\n"
    )
    said = world.call("run", "flow.md", expect=1)
    unit = world.units()["work:solo"]
    assert (unit["state"], unit["reason"]) == ("failed", "llm_bad_response"), said + world.asked()
    assert refusal.tool in said
    assert not (world.folder / "p").exists()


@pytest.mark.parametrize("agent", ["qwen", "gemini"], indirect=True)
def test_a_tool_that_would_need_a_persons_consent_is_not_offered(agent: Agent, world: World) -> None:
    world.engines({"e": world.agent(agent)}, engine="e")
    world.workflow("---\ntype: workflow\nsteps:\n  - id: work\n---\n## work\nDO-IT\n")
    world.call("run", "flow.md")
    offered = world.server.calls()[0]["tools"]
    assert "run_shell_command" not in offered
    assert offered
