from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from interlock.dispatch.python import surroundings

PROGRAM = """
import importlib.util, signal, sys, time
spec = importlib.util.spec_from_file_location("surroundings", sys.argv[1])
surroundings = importlib.util.module_from_spec(spec)
spec.loader.exec_module(surroundings)
around = surroundings.Surroundings()
timer, number = getattr(signal, sys.argv[2]), getattr(signal, sys.argv[3])
signal.signal(number, lambda *_: None)
signal.setitimer(timer, 0.02, 0.02)
around.restore()
until = time.process_time() + 0.1
while time.process_time() < until:
    pass
print(signal.getsignal(number) == signal.SIG_DFL, signal.getitimer(timer))
"""


@pytest.mark.parametrize("timer", [("ITIMER_VIRTUAL", "SIGVTALRM"), ("ITIMER_PROF", "SIGPROF")])
def test_a_profiler_that_a_function_left_running_does_not_end_its_worker(timer: tuple[str, str]) -> None:
    argv = [sys.executable, "-S", "-c", PROGRAM, str(Path(surroundings.__file__)), *timer]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True (0.0, 0.0)\n", "")
