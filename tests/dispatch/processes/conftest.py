"""Drivers in processes of their own, which leave none behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.dispatch.processes.driver import Driver
from tests.dispatch.shop import marked


@pytest.fixture
def run_id() -> Iterator[str]:
    name = f"reaped{os.getpid()}x{time.monotonic_ns()}"
    yield name
    for pid in marked(name):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def drive(run_id: str) -> Iterator[Callable[..., Driver]]:
    """Start a driver of the run in a folder, with commands."""
    made: list[Driver] = []

    def start(folder: Path, *commands: str, then: str = "") -> Driver:
        made.append(Driver(folder, run_id, *commands, then=then))
        return made[-1]

    yield start
    for driver in made:
        driver.kill()
