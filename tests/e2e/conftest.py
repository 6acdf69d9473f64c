"""A world per test, and agents that are skipped with a reason where they are absent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.agents import ALL, Agent, missing
from tests.e2e.world import World
from tests.modelserver.fakellm import FakeLLM


@pytest.fixture
def world(tmp_path: Path, model_server: FakeLLM) -> Iterator[World]:
    made = World(tmp_path, model_server)
    try:
        yield made
        assert made.processes() == {}, "a process outlived its test"
    finally:
        made.close()


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> Agent:
    """Return the agent that the test's parameter names."""
    found = ALL[request.param]
    if reason := missing(found):
        pytest.skip(reason)
    return found
