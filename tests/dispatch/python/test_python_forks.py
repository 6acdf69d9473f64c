from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.dispatch.python import forks

SHOW = """
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("forks", sys.argv[1])
forks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(forks)
true_open = os.open
def no_open(path, flags, *rest):
    if path == "/proc/self/mem":
        raise PermissionError(13, "not on this host")
    return true_open(path, flags, *rest)
if sys.argv[2] == "no memory file":
    os.open = no_open
forks.show_marker(sys.argv[3])
sys.stdout.write(open("/proc/self/environ").read())
"""
Show = Callable[[str], list[str]]


@pytest.fixture(params=["memory file", "no memory file"])
def show(request: pytest.FixtureRequest) -> Show:
    """Show a marker in a process that was started with another one; its environment as seen from outside."""

    def call(marker: str) -> list[str]:
        env = {"A": "1", "INTERLOCK_MARKER": "r:h:1:zygote___ outer", "Z": "2"}
        argv = [sys.executable, "-S", "-c", SHOW, str(Path(forks.__file__)), request.param, marker]
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60).stdout.split("\0")

    return call


def test_a_marker_is_written_over_the_old_one_and_over_nothing_else(show: Show) -> None:
    assert [text for text in show("r:h:1:d1 outer") if text] == ["A=1", "INTERLOCK_MARKER=r:h:1:d1 outer", "Z=2"]
    fits = "r:h:1:zygote123 outer"
    assert show(fits) == ["A=1", f"INTERLOCK_MARKER={fits}", "Z=2", ""]


def test_a_marker_that_has_no_room_changes_nothing(show: Show) -> None:
    assert show("r:h:1:zygote1234 outer") == ["A=1", "INTERLOCK_MARKER=r:h:1:zygote___ outer", "Z=2", ""]
