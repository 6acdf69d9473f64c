"""One kill: a driver of a run or of a fork dies at a commit, others go on to the end, and the ends are compared.

Guarantee: the undisturbed run itself is looked at first, and compared with what is written down by hand, so that a broken
promise is no one's standard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

import msgspec

from interlock.dispatch.git.command import Git
from interlock.testing import drivers
from interlock.testing.cases import Case
from interlock.testing.drivers import KILLED, MORE, Hook, Killer, fork, last_words, wait
from interlock.testing.evidence import Ending, Evidence, gather, left, lines
from interlock.testing.expected import FILES, NAMES, strange
from interlock.testing.kept import astray, lost_changes

GOOD: Final = (0, 6)
_MOST_DRIVES: Final = 4
_SILENT: Final = ("below:solo",)
"""Units that note nothing themselves: the work is done by a child run's."""
Drive = Callable[[Hook | None], int]


class UndisturbedError(Exception):
    """The sample does not do what it should even when nobody is killed."""


def undisturbed(project: Path, names: Sequence[str] = NAMES) -> tuple[Ending, int]:
    """Run the sample to its end; return what it came to and how many commits it took."""
    found, commits = _undisturbed(project, drivers.drive, names=names)
    return found.ending, commits


def _undisturbed(
    project: Path,
    drive: Drive,
    known: Collection[str] = (),
    *,
    names: Sequence[str] = NAMES,
    files: Sequence[str] = FILES,
) -> tuple[Evidence, int]:
    code, commits = _counted(project, drive, Killer("never", 0))
    found = gather(project, besides=known)
    if code not in GOOD or found is None:
        raise UndisturbedError(f"the sample run ended with {code}: {last_words(project)}")
    fault = _fault_of(found, project) or strange(found.ending, names, files)
    if fault:
        raise UndisturbedError(f"the undisturbed run breaks a promise: {fault}")
    return found, commits


def _counted(project: Path, drive: Drive, killer: Killer) -> tuple[int | str, int]:
    """Run one driver under a killer; return how it ended and, unless it was killed, how many commits it made."""
    counted = project / "commits"
    counted.unlink(missing_ok=True)

    def work() -> int:
        code = drive(killer)
        counted.write_text(str(killer.commits), encoding="utf-8")
        return code

    code = wait(fork(project, work))
    return code, int(counted.read_text(encoding="utf-8")) if counted.exists() else 0


def _fault_of(found: Evidence, project: Path) -> str:
    if found.unasked():
        return f"ran without a journaled attempt: {found.unasked()}"
    if found.ungated:
        return f"completed without the verdicts of their gates: {', '.join(found.ungated)}"
    if idle := sorted(unit for unit in found.completed() if not found.times(unit) and unit not in _SILENT):
        return f"journaled as completed, but nothing ran: {', '.join(idle)}"
    if not lines(project / "changed"):
        return "no file was changed in a worktree, so that none can be lost"
    if strays := (*lost_changes(project, found.run_id), *astray(project)):
        return f"lost, or not as it should be in git: {', '.join(strays)}"
    paid = len(lines(project / "paid"))
    return "" if paid == 1 else f"the outside effect happened {paid} times"


def run_case(project: Path, wanted: Ending, moment: str, commit: int) -> Case:
    """Kill one driver of a new run, go on until the run has ended, and compare."""
    return _case(project, drivers.drive, Case(moment=moment, commit=commit), wanted)


def _case(project: Path, drive: Drive, case: Case, wanted: Ending, known: Collection[str] = ()) -> Case:
    """Kill one driver of a run that is none of `known`, go on until the run has ended, and compare.

    How many commits a run takes depends on which units end together. A driver that made fewer than the one it was
    to die at came through alive; its case is too late, and must hold all the same.
    """
    code, made = _counted(project, drive, Killer(case.moment, case.commit))
    dead = gather(project, besides=known)
    note = _finish(project, drive)
    found = gather(project, besides=known)
    case = msgspec.structs.replace(case, killed=code == KILLED, note=note)
    if found is None:
        return msgspec.structs.replace(case, note=note or "there is no run")
    twice = [] if dead is None else _again(dead, found)
    twice += [unit for unit in sorted(found.ending.taken) if found.dispatches(unit) or found.times(unit)]
    if len(lines(project / "paid")) != 1:
        twice.append(f"pay:solo ({len(lines(project / 'paid'))} effects)")
    unasked = {*(dead.unasked() if dead else ()), *found.unasked()}
    return msgspec.structs.replace(
        case,
        too_late=code in GOOD and made < case.commit,
        equal=not note and found.ending == wanted,
        twice=tuple(twice),
        unasked=tuple(f"{unit} {number}" for unit, number in sorted(unasked)),
        ungated=found.ungated,
        left=left(found.run_id, project),
        lost=lost_changes(project, found.run_id),
        astray=astray(project),
    )


class Forks:
    """Forks of one ended run, one after the other in its project, all of them with one more file to change."""

    def __init__(self, project: Path) -> None:
        self._project = project
        source, _ = _undisturbed(project, drivers.drive)
        self._known = [source.run_id]
        self._before = self._source()

    def undisturbed(self) -> tuple[Ending, int]:
        """Fork to the end; return what it came to and how many commits it took. Raises UndisturbedError."""
        self._forget()
        found, commits = _undisturbed(self._project, self._drive, self._known, files=(*FILES, MORE))
        if not found.ending.taken:
            raise UndisturbedError("the fork took nothing over")
        self._known.append(found.run_id)
        return found.ending, commits

    def run_case(self, wanted: Ending, moment: str, commit: int) -> Case:
        """Kill one driver of a new fork, go on until the fork has ended, and compare."""
        self._forget()
        case = _case(self._project, self._drive, Case(verb="fork", moment=moment, commit=commit), wanted, self._known)
        found = gather(self._project, besides=self._known)
        if found is not None:
            self._known.append(found.run_id)
        if self._source() != self._before:
            return msgspec.structs.replace(case, equal=False, note="the run that was forked is another than before")
        return case

    def _drive(self, hook: Hook | None) -> int:
        return drivers.drive_fork(self._known, hook)

    def _forget(self) -> None:
        """Let what ran and changed until now be no witness of the next fork."""
        for name in ("ran", "changed"):
            (self._project / name).unlink(missing_ok=True)

    def _source(self) -> tuple[Ending | None, str]:
        """Return what the run that is forked came to, and where its refs are."""
        found = gather(self._project, besides=self._known[1:])
        refs = Git()(self._project, "for-each-ref", f"refs/interlock/{self._known[0]}").text
        return None if found is None else found.ending, refs


def _finish(project: Path, drive: Drive) -> str:
    """Go on until the run has ended; return what went wrong, or nothing."""
    for _ in range(_MOST_DRIVES):
        code = wait(fork(project, lambda: drive(None)))
        if code in GOOD:
            return ""
    return f"it does not end ({code}): {last_words(project)}"


def _again(dead: Evidence, found: Evidence) -> list[str]:
    """Return the units that were completed when the driver died and were dispatched, or ran, all the same."""
    return sorted(
        unit
        for unit in dead.completed()
        if found.dispatches(unit) > dead.dispatches(unit) or found.times(unit) > dead.times(unit)
    )
