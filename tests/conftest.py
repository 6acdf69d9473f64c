"""Every test runs in a home of its own, with git settings of its own: nothing of the machine decides a result."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from tests.e2e.report import pytest_terminal_summary
from tests.modelserver.fixture import model_server

__all__ = ["heard_signals", "model_server", "own_home", "pytest_terminal_summary"]

# time limits of single examples say nothing on a shared machine
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session", autouse=True)
def heard_signals() -> Iterator[None]:
    """Let children hear Ctrl-C, also where the tests run in the background of a shell that has it ignored."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        # a handler of ours is the default again in what we start
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    # above every test's folder: the search for a project ends at HOME, so nothing further up decides a result
    home = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        for who in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{who}_NAME", "Test")
            patch.setenv(f"GIT_{who}_EMAIL", "test@example.invalid")
        yield
