"""Drivers with real processes killed at random moments until their runs complete.

Run as `python -m interlock.testing.random_kills [--kills N] [--seed S]`; exits 1 if anything does not hold. No
unit journaled as completed is dispatched or runs again, each run ends as the undisturbed one, no process is left,
no change in a worktree is lost and SQLite finds the journal sound after every run.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from interlock.testing import drivers
from interlock.testing.drivers import KILLED, fork, last_words, new_project, wait
from interlock.testing.evidence import Ending, Evidence, gather, integrity, left, lines
from interlock.testing.kept import astray, lost_changes
from interlock.testing.killing import UndisturbedError, undisturbed

_NAMES: Final = 40
_GOOD: Final = (0, 6)
_SHORTEST_S: Final = 0.01
_LONGEST_S: Final = 0.4
_PATIENCE_KILLS: Final = 50


class FaultError(Exception):
    """Something promised does not hold."""


def wide_project(folder: Path) -> Path:
    """Make a project whose maps are wide enough to be killed in many times."""
    names = ", ".join(f"name{n}" for n in range(_NAMES))
    return new_project(folder, lambda text: text.replace("[ada, grace, edsger]", f"[{names}]"))


def kill_until_done(project: Path, wanted: Ending, chance: random.Random) -> int:
    """Kill drivers of one run at random moments until it has ended; return how many were. Raises FaultError."""
    kills = 0
    done: dict[str, tuple[int, int]] = {}
    while True:
        # a host so slow that a merge takes longer than any driver lives must come through at last
        longest_s = _LONGEST_S * (1 + kills / _PATIENCE_KILLS)
        code = _drive_for_a_while(project, chance.uniform(_SHORTEST_S, longest_s))
        found = gather(project)
        if found is not None:
            _check(found, done)
        if code in _GOOD:
            break
        if code != KILLED:
            raise FaultError(f"a driver ended with {code}: {last_words(project)}")
        kills += 1
    if found is None or found.ending != wanted:
        raise FaultError("the run ended otherwise than undisturbed")
    _check_end(project, found)
    return kills


def _drive_for_a_while(project: Path, seconds: float) -> int | str:
    pid = fork(project, drivers.drive)
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    return wait(pid)


def _check(found: Evidence, done: dict[str, tuple[int, int]]) -> None:
    """Compare with what was seen completed before, and take note of what is now."""
    if found.unasked():
        raise FaultError(f"ran without a journaled attempt: {found.unasked()}")
    for unit in found.completed():
        figures = found.dispatches(unit), found.times(unit)
        if done.setdefault(unit, figures) != figures:
            raise FaultError(f"{unit} was completed, and done again: {done[unit]} became {figures}")


def _check_end(project: Path, found: Evidence) -> None:
    if found.ungated:
        raise FaultError(f"gates skipped: {found.ungated}")
    paid = len(lines(project / "paid"))
    if paid != 1:
        raise FaultError(f"the outside effect happened {paid} times")
    if left(found.run_id, project):
        raise FaultError("processes are left")
    if lost := lost_changes(project, found.run_id):
        raise FaultError(f"changes are lost: {lost}")
    if strays := astray(project):
        raise FaultError(f"not as it should be in git: {strays}")
    sound = integrity(project)
    if sound != "ok":
        raise FaultError(f"the journal is damaged: {sound}")


def main(argv: list[str] | None = None) -> int:
    """Kill drivers of one run after the other until so many were killed."""
    parser = argparse.ArgumentParser(prog="python -m interlock.testing.random_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many drivers to kill")
    parser.add_argument("--seed", type=int, default=None, help="repeat the moments of an earlier test")
    chosen = parser.parse_args(argv)
    seed = chosen.seed if chosen.seed is not None else int.from_bytes(os.urandom(4), "big")
    sys.stdout.write(f"seed {seed}\n")
    folder = Path(tempfile.mkdtemp(prefix="interlock-random-kills-"))
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    kills = runs = 0
    try:
        wanted, _ = undisturbed(wide_project(folder / "undisturbed"))
        while kills < chosen.kills:
            runs += 1
            kills += kill_until_done(wide_project(folder / str(runs)), wanted, chance)
    except (FaultError, UndisturbedError) as error:
        sys.stderr.write(f"run {runs}, after {kills} kills: {error}; kept in {folder}\n")
        return 1
    sys.stdout.write(f"{kills} drivers of {runs} runs killed; all held\n")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
