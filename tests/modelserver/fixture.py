"""The fixture `model_server`: a scripted model server for one test, stopped with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.modelserver.fakellm import FakeLLM


@pytest.fixture
def model_server() -> Iterator[FakeLLM]:
    with FakeLLM() as server:
        yield server
