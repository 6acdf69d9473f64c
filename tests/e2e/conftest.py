"""A world per test, and agents that are skipped with a reason where they are absent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.agents import ALL, Agent, missing
from tests.e2e.world import World
from tests.modelserver.fakellm import FakeLLM


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give real agents on a busy machine the time that they may need."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(300))


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
