"""A driver that kills itself: before or after its n-th commit, with SIGKILL, as a power cut would.

Run as a program: `driver.py PROJECT WORKFLOW AT COMMIT`, where AT is `before`, `after` or `never`. The run has a
key, so the same call starts it, continues it or gives its finished outcome. Prints the run's id and the number
of commits.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from interlock.app import App
from interlock.driver.configuration import require_config
from interlock.driver.params import ParamsInput
from interlock.driver.project import project_at

KEY = "selftest"


class Killer:
    """Counts commits and ends this process at the one that was asked for."""

    def __init__(self, at: str, commit: int) -> None:
        self._at = at
        self._commit = commit
        self.commits = 0

    def __call__(self, moment: str) -> None:
        """Take note of a commit about to happen, or just done."""
        if moment == "before":
            self.commits += 1
        if moment == self._at and self.commits == self._commit:
            os.kill(os.getpid(), signal.SIGKILL)


def main(project: str, workflow: str, at: str, commit: str) -> int:
    """Drive the sample."""
    killer = Killer(at, int(commit))
    paths = project_at(Path(project))
    app = App(paths, require_config(paths), on_commit=killer)
    try:
        result = app.run_file(Path(workflow), ParamsInput(), key=KEY)
    finally:
        app.close()
    sys.stdout.write(f"{result.run_id} {killer.commits} {result.state}\n")
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
