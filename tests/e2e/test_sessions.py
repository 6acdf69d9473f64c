"""A warm loop goes on in the agent's own session, and says so where it had to start anew."""

from __future__ import annotations

import pytest
from tests.e2e.agents import ALL, Agent
from tests.e2e.test_prompts import texts
from tests.e2e.world import World

WORKFLOW = """---
type: workflow
defaults: { timeout: 60s }
steps:
  - id: work
    retry: { max: 0, session: continue }
    gate: { check: "test -e seen || { touch seen; echo ITS-FEEDBACK; exit 1; }", max_loops: 2 }
---
## work
THE-TASK
"""


@pytest.mark.parametrize("agent", sorted(ALL), indirect=True)
def test_a_rejected_answer_is_mended_in_the_same_session(agent: Agent, world: World) -> None:
    world.engines({"e": world.agent(agent)}, engine="e")
    world.server.script({"match": "any:ITS-FEEDBACK", "text": "SECOND-ANSWER"}, default={"text": "FIRST-ANSWER"})
    world.workflow(WORKFLOW)
    world.call("run", "flow.md")
    assert world.artifact("work") == "SECOND-ANSWER"
    sessions = {unit["id"]: unit["session"] for unit in world.units().values() if unit["id"].startswith("work:")}
    last = [entry for entry in world.server.calls() if entry.get("reply") == "SECOND-ANSWER"][-1]
    assert any("FIRST-ANSWER" in text for text in texts(last["body"])), world.asked()
    assert len(set(sessions.values())) == 1, sessions


@pytest.mark.parametrize("agent", ["claude"], indirect=True)
def test_a_session_that_is_gone_is_said_and_the_work_begins_anew(agent: Agent, world: World) -> None:
    world.engines({"e": world.agent(agent)}, engine="e")
    world.server.script({"match": "any:ITS-FEEDBACK", "text": "SECOND-ANSWER"}, default={"text": "FIRST-ANSWER"})
    world.workflow(WORKFLOW.replace("touch seen;", "touch seen; rm -r ~/.claude/projects;"))
    said = world.call("run", "flow.md")
    assert "of engine `e` is gone; a new one was started" in said
    assert world.artifact("work") == "SECOND-ANSWER"
    assert not any("FIRST-ANSWER" in text for text in texts(world.server.calls()[-1]["body"]))
