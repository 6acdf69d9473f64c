"""A driver that is stopped in the middle and wakes after another took its lease over.

Run as `python -m interlock.testing.suspension [--every N]`; exits 1 if anything does not hold. The one that wakes
must find out, start nothing, and change nothing but the ends of its own attempts that nobody has closed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

from interlock.testing import drivers
from interlock.testing.clock import LateClock
from interlock.testing.drivers import fork, last_words, new_project, wait
from interlock.testing.evidence import Ending, Evidence, digest, gather, left
from interlock.testing.kept import astray, lost_changes
from interlock.testing.killing import UndisturbedError, undisturbed

LATER_MS: Final = 100_000
"""More than a lease's term."""
LEASE_HELD: Final = 5
_GOOD: Final = (0, 6)
_OTHERS_COMMIT: Final = 4
"""After which the second driver is stopped: it has closed what the first left open and begun work of its own."""


class Sleeper:
    """Stops this process after its n-th commit; on waking, that much time has gone by."""

    def __init__(self, commit: int, slept_ms: int, clock: LateClock) -> None:
        self._commit = commit
        self._slept_ms = slept_ms
        self._clock = clock
        self._commits = 0

    def __call__(self, moment: str) -> None:
        """Take note of a commit."""
        self._commits += moment == "after"
        if moment == "after" and self._commits == self._commit:
            os.kill(os.getpid(), signal.SIGSTOP)
            self._clock.late_ms += self._slept_ms


def _drive(commit: int, slept_ms: int, clock: LateClock) -> int:
    return drivers.drive(Sleeper(commit, slept_ms, clock), clock)


def suspend(project: Path, commit: int, wanted: Ending) -> str:
    """Suspend a driver after that commit, let another take over, wake the first in the middle of the other's work.

    Return what did not hold.
    """
    first = fork(project, lambda: _drive(commit, LATER_MS, LateClock()))
    if wait(first, stopped=True) != "stopped":
        return ""
    second = fork(project, lambda: _drive(_OTHERS_COMMIT, 0, LateClock(LATER_MS)))
    code = wait(second, stopped=True)
    journal = digest(project)
    os.kill(first, signal.SIGCONT)
    woken = wait(first)
    changed = digest(project) != journal
    if code == "stopped":
        os.kill(second, signal.SIGCONT)
        code = wait(second)
    if woken not in (*_GOOD, LEASE_HELD):
        return f"the driver that woke ended with {woken}: {last_words(project)}"
    if changed:
        return "the driver that woke changed the journal of a run that another drives"
    found = gather(project)
    if code not in _GOOD or found is None:
        return f"the second driver ended with {code}: {last_words(project)}"
    return _fault_of(project, found, wanted)


def _fault_of(project: Path, found: Evidence, wanted: Ending) -> str:
    if found.unasked() or found.ending != wanted:
        return f"the run ended otherwise than undisturbed; ran without a journaled attempt: {found.unasked()}"
    if left(found.run_id, project):
        return "processes are left"
    strays = (*lost_changes(project, found.run_id), *astray(project))
    return f"lost, or not as it should be in git: {', '.join(strays)}" if strays else ""


def main(argv: list[str] | None = None) -> int:
    """Suspend a driver after each commit of the sample run, or each N-th."""
    parser = argparse.ArgumentParser(prog="python -m interlock.testing.suspension", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="suspend only after each N-th commit")
    parser.add_argument("--first", action="store_true", help="stop at the first fault")
    chosen = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="interlock-suspension-"))
    try:
        wanted, commits = undisturbed(new_project(folder / "undisturbed"))
    except UndisturbedError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    faults = tried = 0
    for commit in range(1, commits + 1, chosen.every):
        tried += 1
        fault = suspend(new_project(folder / str(commit)), commit, wanted)
        if fault:
            faults += 1
            sys.stderr.write(f"suspended after commit {commit}: {fault}\n")
            if chosen.first:
                break
    sys.stdout.write(f"{tried} drivers suspended, {faults} faults\n")
    shutil.rmtree(folder, ignore_errors=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
