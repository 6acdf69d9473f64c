from __future__ import annotations

import pytest
from tests.dispatch.agents.replies import ask

from interlock.dispatch.agents.base import Card, Launch
from interlock.dispatch.agents.notices import notices
from interlock.dispatch.agents.registry import ADAPTERS, adapter

CARD = Card(program="cli", cannot=frozenset({"temperature", "extra_params", "model"}))
LAUNCH = Launch(argv=("cli",), notices=("its own",))


def test_what_is_asked_for_and_cannot_be_honoured_is_said() -> None:
    said = notices(CARD, ask(temperature=0.0, max_tokens=5, extra_params_json='{"a":1}'), LAUNCH)
    assert said == (
        "engine `coder` (cli) cannot honour `temperature`",
        "engine `coder` (cli) cannot honour `extra_params`",
        "its own",
    )


def test_what_is_not_asked_for_is_not_said() -> None:
    assert notices(CARD, ask(), LAUNCH) == ("its own",)


def test_a_cold_start_in_place_of_a_session_is_said() -> None:
    said = notices(CARD, ask(session="s"), Launch(argv=("cli",)))
    assert said == ("engine `coder` (cli) cannot go on in a session; a new one was started",)


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "qwen"])
def test_an_agents_line_in_the_registry_leads_to_its_adapter(agent: str) -> None:
    assert agent in ADAPTERS
    assert adapter(agent).card.program == agent
