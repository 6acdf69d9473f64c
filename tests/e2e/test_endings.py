"""Every way in which a prompt can end, with every agent, through the whole program against the scripted server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.e2e.agents import ALL, Agent
from tests.e2e.cases import CASES, CAVEATS, TITLED, WAIT_S, prompt, script, workflow
from tests.e2e.world import World


@pytest.mark.parametrize("agent", sorted(ALL), indirect=True)
def test_every_ending_is_told_for_what_it_is(agent: Agent, world: World) -> None:
    world.engines({"e": world.agent(agent, concurrency=4)}, engine="e")
    cases = list(CASES)
    world.server.script(*(step for case in cases for step in script(case)))
    world.workflow(workflow(cases))
    world.call("run", "flow.md", expect=(1, 6))
    units = world.units()
    expected = {case: known.end for case, known in CASES.items()} | CAVEATS.get(agent.name, {})
    told = {case: end_of(units[f"{case}:solo"]) for case in cases}
    assert told == expected, world.asked()
    assert units["success:solo"]["result"] == "the answer"
    assert units["schema:solo"]["result"] == {"n": 3}
    times = [entry["t"] for entry in world.server.calls() if prompt("limited") in entry["user"]]
    # it was told to wait, and did, whoever tried again
    assert agent.name in TITLED or times[1] - times[0] >= WAIT_S - 0.1


def end_of(unit: dict[str, Any]) -> str:
    return str(unit["reason"] or unit["state"])
