"""What a function forked and left is its unit's, wherever it went."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.dispatch.shop import runs, until

from interlock.dispatch.processes.reaper_main import marker_of

Make = Callable[..., Any]

DAEMONS = """
import multiprocessing, os, time

def stay(name):
    os.setsid()
    if os.fork() == 0:
        with open(name + ".part", "w") as file:
            file.write(str(os.getpid()))
        os.rename(name + ".part", name)
        time.sleep(60)
    os._exit(0)

def daemon(context):
    name = context["item"]
    multiprocessing.get_context("fork").Process(target=stay, args=(name,)).start()
    while not os.path.exists(name):
        time.sleep(0.001)
    if name == "hangs":
        time.sleep(60)
"""


def test_what_only_forked_is_ended_with_its_unit_and_what_another_left_is_not(
    make_functions: Make, tmp_path: Path
) -> None:
    functions = make_functions(DAEMONS)
    [left] = functions.run("daemon", "before")
    before = int((tmp_path / "before").read_text(encoding="ascii"))
    assert marker_of(before) == f"{functions.run_id}:holder:1:d1".encode()
    [timed_out] = functions.run("daemon", "hangs", timeout_ms=1_000)
    during = int((tmp_path / "hangs").read_text(encoding="ascii"))
    assert timed_out.process == left.process
    assert [runs(before), runs(during)] == [True, False]
    functions.executor.close()
    until(lambda: not runs(before))
