"""Drivers with real processes killed at random moments until their runs complete.

Run as `python -m interlock.testing.random_kills [--kills N] [--seed S] [--asleep SHARE]`; exits 1 if anything does
not hold. No unit journaled as completed is dispatched or runs again, each run ends as the undisturbed one, no process is
left, no change in a worktree is lost and SQLite finds the journal sound after every run. Now and then a driver is not
killed but sleeps until another, who is killed then, has taken its run over: it must change nothing when it wakes. The
kills must be spread over the whole of a run.
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
from collections import Counter
from pathlib import Path
from typing import Final

from interlock.model.states import AttemptState, UnitState
from interlock.testing import drivers
from interlock.testing.drivers import KILLED, fork, last_words, new_project, wait
from interlock.testing.evidence import Ending, Evidence, gather, integrity, left, lines
from interlock.testing.expected import NAMES
from interlock.testing.kept import astray, lost_changes
from interlock.testing.killing import GOOD, UndisturbedError, undisturbed
from interlock.testing.suspension import overtake

_NAMES: Final = tuple(f"name{n}" for n in range(40))
_SHORTEST_S: Final = 0.01
_LONGEST_S: Final = 0.4
_PATIENCE_KILLS: Final = 50
_ASLEEP: Final = 0.1
_FARTHEST_COMMIT: Final = 12
_PARTS: Final = 4
_ENOUGH: Final = 100
"""So many kills miss no part of a run by chance."""
_OPEN: Final = (AttemptState.RESERVED, AttemptState.STARTED)


class FaultError(Exception):
    """Something promised does not hold."""


class Spread:
    """Where kills landed: in which part of the run's work, and in how much that was under way."""

    def __init__(self, wanted: Ending) -> None:
        self._units = _completed(wanted)
        self.kills = 0
        self.busy = 0
        self.woken = 0
        self.parts = Counter[int]()

    def add(self, found: Evidence | None) -> None:
        """Take note of a kill, and of what it left."""
        self.kills += 1
        done = 0 if found is None else _completed(found.ending)
        self.parts[min(_PARTS - 1, _PARTS * done // self._units)] += 1
        self.busy += found is not None and any(state in _OPEN for state in found.attempts.values())

    def require(self) -> None:
        """Raise FaultError where so many kills should have met what they did not; a few kills prove nothing."""
        if self.kills < _ENOUGH:
            return
        missed = [f"part {part + 1} of {_PARTS} of a run" for part in range(_PARTS) if not self.parts[part]]
        missed += [] if self.busy > self.kills // _PARTS else ["work under way often enough"]
        missed += [] if self.woken else ["a driver that woke while another drove"]
        if missed:
            raise FaultError(f"the kills missed {', '.join(missed)} ({self})")

    def __str__(self) -> str:
        parts = ", ".join(str(self.parts[part]) for part in range(_PARTS))
        return f"{self.busy} with work under way, by quarters of the work {parts}; {self.woken} overtaken drivers woke"


def _completed(ending: Ending) -> int:
    return sum(state == UnitState.COMPLETED for _, state, *_ in ending.units)


def wide_project(folder: Path) -> Path:
    """Make a project whose maps are wide enough to be killed in many times."""
    narrow, wide = ", ".join(NAMES), ", ".join(_NAMES)
    return new_project(folder, lambda text: text.replace(f"[{narrow}]", f"[{wide}]"))


def kill_until_done(project: Path, wanted: Ending, chance: random.Random, spread: Spread, asleep: float) -> None:
    """Kill drivers of one run at random moments until it has ended. Raises FaultError."""
    kills = 0
    done: dict[str, tuple[int, int]] = {}
    while True:
        if chance.random() < asleep:
            code = _oversleep(project, chance.randint(1, _FARTHEST_COMMIT), spread)
        else:
            # a host so slow that a merge takes longer than any driver lives must come through at last
            longest_s = _LONGEST_S * (1 + kills / _PATIENCE_KILLS)
            code = _drive_for_a_while(project, chance.uniform(_SHORTEST_S, longest_s))
        found = gather(project)
        if found is not None:
            _check(found, done)
        if code in GOOD:
            break
        if code != KILLED:
            raise FaultError(f"a driver ended with {code}: {last_words(project)}")
        kills += 1
        spread.add(found)
    if found is None:
        raise FaultError("there is no run")
    _check_end(project, found)
    if found.ending != wanted:
        raise FaultError("the run ended otherwise than undisturbed")


def _oversleep(project: Path, commit: int, spread: Spread) -> int | str:
    """Let a driver sleep until another has taken over, and kill that one; return how the last of them ended."""
    (project / "commits").unlink(missing_ok=True)
    done = overtake(project, commit)
    spread.woken += done.crossed
    code = done.code if done.slept else done.first
    if done.crossed:
        os.kill(done.second, signal.SIGKILL)
        code = wait(done.second)
    if done.fault:
        raise FaultError(done.fault)
    return code


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
    parser.add_argument("--asleep", type=float, default=_ASLEEP, help="how many are overtaken in their sleep, of 1")
    chosen = parser.parse_args(argv)
    seed = chosen.seed if chosen.seed is not None else int.from_bytes(os.urandom(4), "big")
    sys.stdout.write(f"seed {seed}\n")
    folder = Path(tempfile.mkdtemp(prefix="interlock-random-kills-"))
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    spread, runs = None, 0
    try:
        wanted, _ = undisturbed(wide_project(folder / "undisturbed"), _NAMES)
        spread = Spread(wanted)
        while spread.kills < chosen.kills:
            runs += 1
            kill_until_done(wide_project(folder / str(runs)), wanted, chance, spread, chosen.asleep)
        spread.require()
    except (FaultError, UndisturbedError) as error:
        kills = spread.kills if spread else 0
        sys.stderr.write(f"run {runs}, after {kills} kills: {error}; kept in {folder}\n")
        return 1
    sys.stdout.write(f"{spread}\n{spread.kills} drivers of {runs} runs killed; all held\n")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
