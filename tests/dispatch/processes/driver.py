"""A driver in a process of its own, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import interlock

_PROGRAM = """
import sys, time
from pathlib import Path
from interlock.dispatch.base import Job, Request
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.processes import lookout
from interlock.dispatch.processes.identity import read_stat
from interlock.dispatch.processes.markers import Marker
from interlock.dispatch.commands.runner import CommandRunner
from interlock.dispatch.env.redact_base import NullRedactor, ResolvedEnv
from interlock.model.plan import Command
folder, run_id, then = Path(sys.argv[1]), *sys.argv[2:4]
lookout.EVERY_S = 0.02
marker = Marker(run_id, "holder", 1)
runner = CommandRunner(lambda _: None, lambda _: ResolvedEnv({}, NullRedactor()), RunLog(folder / "log"), folder, marker)
for number, text in enumerate(sys.argv[4:]):
    job = Job(key=str(number), run_id=run_id, step_id="s", step=0, target=Command(text=text), shell=("bash", "-c"),
              cwd=str(folder))
    runner.start(Request(job=job, dispatch=f"d{number}", unit_id="s:solo", attempt=1, idempotency_key="k"))
exec(then)
time.sleep(600)
"""


class Driver:
    """Starts the commands, then runs the Python text `then`, and waits."""

    def __init__(self, folder: Path, run_id: str, *commands: str, then: str = "") -> None:
        # whatever is installed: the package that is tested
        source = Path(interlock.__file__).parents[1]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(folder), run_id, then, *commands],
            env={**os.environ, "PYTHONPATH": str(source)},
            start_new_session=True,
        )

    def kill(self, number: signal.Signals = signal.SIGKILL) -> float:
        """Return when (monotonic) it was gone. Idempotent."""
        self.process.send_signal(number)
        self.process.wait()
        return time.monotonic()
