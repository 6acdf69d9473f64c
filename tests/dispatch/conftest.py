"""Command runners on folders of their own, which leave no process behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.dispatch.prompting import Prompts
from tests.dispatch.shop import Shop, marked
from tests.modelserver.fakellm import FakeLLM


@pytest.fixture(params=[False, True], ids=["threads", "pumped"])
def pumped(request: pytest.FixtureRequest) -> bool:
    """Whether young attempts are watched by the thread that polls."""
    return bool(request.param)


@pytest.fixture
def shop(tmp_path: Path, *, pumped: bool) -> Iterator[Shop]:
    made = Shop(tmp_path, pumped=pumped)
    try:
        yield made
    finally:
        made.close()
        assert marked(made.marker.run_id) == []


@pytest.fixture
def open_shop(tmp_path: Path, *, pumped: bool) -> Iterator[Callable[..., Shop]]:
    """Make a shop with settings of its own."""
    made: list[Shop] = []

    def make(**settings: Any) -> Shop:
        made.append(Shop(tmp_path, pumped=pumped, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def prompts(tmp_path: Path, model_server: FakeLLM) -> Iterator[Prompts]:
    made = Prompts(tmp_path, model_server.url)
    yield made
    made.close()
