"""A driver that is stopped in the middle and wakes after another took its lease over.

Run as `python -m interlock.testing.suspension [--every N]`; exits 1 if anything does not hold. The one that wakes
must find out, start nothing, and change nothing but the ends of its own attempts that nobody has closed. Some begin the
run, others go on with what a killed one left: these are stopped while they take over, and read. A driver that was to be
stopped and was not is a fault, unless it had fewer commits to make; and some must wake while another drives.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import msgspec

from interlock.testing import drivers
from interlock.testing.clock import LateClock
from interlock.testing.drivers import STOPPED, Killer, fork, last_words, new_project, wait
from interlock.testing.evidence import Ending, Evidence, digest, gather, left, told
from interlock.testing.kept import astray, lost_changes
from interlock.testing.killing import GOOD, UndisturbedError, undisturbed

LATER_MS: Final = 100_000
"""More than a lease's term."""
LEASE_HELD: Final = 5
_OTHERS_COMMIT: Final = 2
"""Of events, after which the second driver is stopped: it has closed what the first left open, which in one of its own."""
_KILLED: Final = (3, 5, 6)
"""Commits after which drivers are killed whose runs others go on with, who are then suspended."""
_TAKING_OVER: Final = 3
"""Commits in which a driver takes the lease over, renews it and closes what was left."""


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


class Telling:
    """Passes commits on that journaled an event: taking a lease, and renewing it, journal none."""

    def __init__(self, project: Path, hook: Callable[[str], None]) -> None:
        self._project = project
        self._hook = hook
        self._told = told(project)

    def __call__(self, moment: str) -> None:
        """Take note of a commit."""
        if moment == "after" and (now := told(self._project)) != self._told:
            self._told = now
            self._hook(moment)


class Overtaken(msgspec.Struct, frozen=True):
    """What came of a driver that slept while another took over, and of the other."""

    slept: bool
    """Whether the first was stopped at all; it has ended in any case."""
    first: int | str
    """How the first ended."""
    second: int = 0
    """The other's process, which is still stopped where `crossed`."""
    code: int | str = 0
    """How the other ended, if it has."""
    crossed: bool = False
    """Whether the first woke in the middle of the other's work."""
    fault: str = ""


def overtake(project: Path, commit: int) -> Overtaken:
    """Suspend a driver after that commit, let another take over, wake the first in the middle of the other's work."""
    first = fork(project, lambda: _drive(commit, LATER_MS, LateClock()))
    code = wait(first, stopped=True)
    if code != STOPPED:
        return Overtaken(slept=False, first=code, fault=_awake(project, commit, code))
    second = fork(project, lambda: _take_over(project, LateClock(LATER_MS)))
    code = wait(second, stopped=True)
    journal = digest(project)
    os.kill(first, signal.SIGCONT)
    woken = wait(first)
    changed = digest(project) != journal
    fault = ""
    if woken not in (*GOOD, LEASE_HELD):
        fault = f"the driver that woke ended with {woken}: {last_words(project)}"
    elif changed:
        fault = "the driver that woke changed the journal of a run that another drives"
    elif code == STOPPED and woken in GOOD and not _over(project):
        fault = "the driver that woke said that the run is over, which another drives"
    return Overtaken(slept=True, first=woken, second=second, code=code, crossed=code == STOPPED, fault=fault)


def _drive(commit: int, slept_ms: int, clock: LateClock) -> int:
    sleeper, counter = Sleeper(commit, slept_ms, clock), Killer("never", 0)

    def hook(moment: str) -> None:
        # counted apart from the sleeper, whose word for having slept is not taken
        counter(moment)
        sleeper(moment)

    code = drivers.drive(hook, clock)
    Path("commits").write_text(str(counter.commits), encoding="utf-8")
    return code


def _take_over(project: Path, clock: LateClock) -> int:
    return drivers.drive(Telling(project, Sleeper(_OTHERS_COMMIT, 0, clock)), clock)


def _awake(project: Path, commit: int, code: int | str) -> str:
    """Say what was wrong with a driver that was never stopped: nothing, where its run was over before that commit."""
    counted = project / "commits"
    made = int(counted.read_text(encoding="utf-8")) if counted.exists() else 0
    if code in GOOD and made < commit:
        return ""
    return f"the driver was not stopped, but ended with {code} after {made} commits: {last_words(project)}"


def _over(project: Path) -> bool:
    found = gather(project)
    return found is not None and found.ending.outcome is not None


def suspend(project: Path, commit: int, wanted: Ending) -> Overtaken:
    """Let a driver be overtaken after that commit and the other finish; look at what the run came to."""
    (project / "commits").unlink(missing_ok=True)
    done = overtake(project, commit)
    code = done.code if done.slept else done.first
    if done.crossed:
        os.kill(done.second, signal.SIGCONT)
        code = wait(done.second)
    if done.fault:
        return done
    found = gather(project)
    if code not in GOOD or found is None:
        fault = f"the last driver ended with {code}: {last_words(project)}"
    else:
        fault = _fault_of(project, found, wanted)
    return msgspec.structs.replace(done, fault=fault)


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
    parser.add_argument("--resumed", action="store_true", help="suspend also drivers that go on with a run")
    parser.add_argument("--first", action="store_true", help="stop at the first fault")
    chosen = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="interlock-suspension-"))
    try:
        wanted, commits = undisturbed(new_project(folder / "undisturbed"))
    except UndisturbedError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    tried: list[Overtaken] = []
    cases = [(0, commit) for commit in range(1, commits + 1, chosen.every)]
    if chosen.resumed:
        cases += product(_KILLED, range(1, _TAKING_OVER + 1))
    for killed, commit in cases:
        project = new_project(folder / f"{killed}-{commit}")
        if killed:
            wait(fork(project, partial(drivers.drive, Killer("after", killed))))
        tried.append(suspend(project, commit, wanted))
        if tried[-1].fault:
            before = f" of a run that was left after commit {killed}" if killed else ""
            sys.stderr.write(f"suspended after commit {commit}{before}: {tried[-1].fault}\n")
            if chosen.first:
                break
    slept, crossed = sum(one.slept for one in tried), sum(one.crossed for one in tried)
    faults = sum(bool(one.fault) for one in tried)
    if not crossed:
        faults += 1
        sys.stderr.write("no driver woke while another drove its run\n")
    sys.stdout.write(f"{slept} drivers suspended, {crossed} woke while another drove, {faults} faults\n")
    shutil.rmtree(folder, ignore_errors=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
