"""Every test runs in a home of its own, with git settings of its own: nothing of the machine decides a result."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

import pytest
from hypothesis import settings
from tests.e2e.report import pytest_terminal_summary
from tests.modelserver.fixture import model_server

__all__ = ["heard_signals", "model_server", "own_home", "pytest_terminal_summary"]

# time limits of single examples say nothing on a shared machine
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# a handler of ours is the default again in what we start
_HANDLERS: Final[dict[int, Callable[[int, FrameType | None], object] | signal.Handlers]] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGHUP: signal.SIG_DFL,
}


@pytest.fixture(scope="session", autouse=True)
def heard_signals() -> Iterator[None]:
    """Let children hear Ctrl-C and a closing terminal, also where who started the tests has them ignored."""
    ignored = [number for number in _HANDLERS if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, _HANDLERS[number])
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


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
