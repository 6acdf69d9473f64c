"""The kill matrix: for each commit of the sample run one driver killed before it and one after it, then resumed.

Run as `python -m interlock.testing.kill_matrix [--every N] [--json]`; exits 1 if anything does not hold. A case
holds when the resumed run ends as the undisturbed one, byte for byte; nothing ran that was not journaled before;
no unit journaled as completed was dispatched or ran again; the outside effect happened once; every completed step
has the verdicts its gate asks for; and no process is left.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from interlock.testing import drivers
from interlock.testing.drivers import KILLED, Killer, fork, last_words, new_project, wait
from interlock.testing.evidence import Ending, Evidence, gather, left, lines

_GOOD: Final = (0, 6)
_MOMENTS: Final = ("before", "after")
_MOST_DRIVES: Final = 4
_SIDE_BY_SIDE: Final = 2


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One kill and what came of it."""

    moment: str
    commit: int
    killed: bool = False
    too_late: bool = False
    equal: bool = False
    twice: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()
    ungated: tuple[str, ...] = ()
    left: int = 0
    note: str = ""

    @property
    def holds(self) -> bool:
        """Tell whether everything promised held."""
        landed = self.killed or self.too_late
        return landed and self.equal and not (self.twice or self.unasked or self.ungated or self.left)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole matrix."""

    commits: int
    cases: tuple[Case, ...]
    seconds: float

    @property
    def holds(self) -> bool:
        """Tell whether every case held, and at each moment that was tried some driver died."""
        died = {case.moment for case in self.cases if case.killed}
        return died == {case.moment for case in self.cases} != set() and all(case.holds for case in self.cases)


class UndisturbedError(Exception):
    """The sample does not do what it should even when nobody is killed."""


def undisturbed(project: Path) -> tuple[Ending, int]:
    """Run the sample to its end; return what it came to and how many commits it took."""
    code, commits = _drive(project, Killer("never", 0))
    found = gather(project)
    if code not in _GOOD or found is None:
        raise UndisturbedError(f"the sample run ended with {code}: {last_words(project)}")
    fault = _fault_of(found, project)
    if fault:
        raise UndisturbedError(f"the undisturbed run breaks a promise: {fault}")
    return found.ending, commits


def _drive(project: Path, killer: Killer) -> tuple[int | str, int]:
    """Run one driver under a killer; return how it ended and, unless it was killed, how many commits it made."""
    counted = project / "commits"

    def work() -> int:
        code = drivers.drive(killer)
        counted.write_text(str(killer.commits), encoding="utf-8")
        return code

    code = wait(fork(project, work))
    return code, int(counted.read_text(encoding="utf-8")) if counted.exists() else 0


def _fault_of(found: Evidence, project: Path) -> str:
    if found.unasked():
        return f"ran without a journaled attempt: {found.unasked()}"
    if found.ungated:
        return f"completed without the verdicts of their gates: {', '.join(found.ungated)}"
    paid = len(lines(project / "paid"))
    return "" if paid == 1 else f"the outside effect happened {paid} times"


def run_case(project: Path, wanted: Ending, moment: str, commit: int) -> Case:
    """Kill one driver, go on until the run has ended, and compare.

    How many commits a run takes depends on which units end together. A driver that made fewer than the one it was
    to die at came through alive; its case is too late, and must hold all the same.
    """
    code, made = _drive(project, Killer(moment, commit))
    dead = gather(project)
    note = _finish(project)
    found = gather(project)
    if found is None:
        return Case(moment=moment, commit=commit, killed=code == KILLED, note=note or "there is no run")
    twice = [] if dead is None else _again(dead, found)
    if len(lines(project / "paid")) != 1:
        twice.append(f"pay:solo ({len(lines(project / 'paid'))} effects)")
    unasked = {*(dead.unasked() if dead else ()), *found.unasked()}
    return Case(
        moment=moment,
        commit=commit,
        killed=code == KILLED,
        too_late=code in _GOOD and made < commit,
        equal=not note and found.ending == wanted,
        twice=tuple(twice),
        unasked=tuple(f"{unit} {number}" for unit, number in sorted(unasked)),
        ungated=found.ungated,
        left=left(found.run_id),
        note=note,
    )


def _finish(project: Path) -> str:
    """Go on until the run has ended; return what went wrong, or nothing."""
    for _ in range(_MOST_DRIVES):
        code = wait(fork(project, drivers.drive))
        if code in _GOOD:
            return ""
    return f"it does not end ({code}): {last_words(project)}"


def _again(dead: Evidence, found: Evidence) -> list[str]:
    """Return the units that were completed when the driver died and were dispatched, or ran, all the same."""
    return sorted(
        unit
        for unit in dead.completed()
        if found.dispatches(unit) > dead.dispatches(unit) or found.times(unit) > dead.times(unit)
    )


def kill_matrix(folder: Path, *, every: int = 1, tell: Callable[[Case], None] = lambda _case: None) -> Report:
    """Run all cases (or each `every`-th) in projects below `folder`. Raises UndisturbedError."""
    began = time.monotonic()
    wanted, commits = undisturbed(new_project(folder / "undisturbed"))
    places = [(moment, commit) for commit in range(1, commits + 1) for moment in _MOMENTS][::every]
    cases = []
    for case in _side_by_side(folder, wanted, places):
        cases.append(case)
        tell(case)
    cases.sort(key=lambda case: (case.commit, case.moment == "after"))
    return Report(commits=commits, cases=tuple(cases), seconds=time.monotonic() - began)


def _side_by_side(folder: Path, wanted: Ending, places: list[tuple[str, int]]) -> Iterator[Case]:
    """Share the cases out to a few forked workers, each of which tells of its own through one pipe."""
    reading, writing = os.pipe()
    workers = []
    for number in range(_SIDE_BY_SIDE):
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _work(folder, wanted, places[number::_SIDE_BY_SIDE], writing)
        workers.append(pid)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        for line in told:
            yield msgspec.json.decode(line, type=Case)
    for pid in workers:
        os.waitpid(pid, 0)


def _work(folder: Path, wanted: Ending, places: list[tuple[str, int]], writing: int) -> None:
    try:
        for moment, commit in places:
            project = new_project(folder / f"{moment}-{commit}")
            case = run_case(project, wanted, moment, commit)
            os.write(writing, msgspec.json.encode(case) + b"\n")
            if case.holds:
                shutil.rmtree(project, ignore_errors=True)
    finally:
        os._exit(0)


def describe(case: Case) -> str:
    """Say in one line what did not hold."""
    parts = (
        "" if case.killed or case.too_late else "the driver did not die there",
        "" if case.equal else f"did not end as the undisturbed run ({case.note or 'other artifacts or states'})",
        f"done twice: {', '.join(case.twice)}" if case.twice else "",
        f"ran without a journaled attempt: {', '.join(case.unasked)}" if case.unasked else "",
        f"gates skipped: {', '.join(case.ungated)}" if case.ungated else "",
        f"{case.left} processes left" if case.left else "",
    )
    return f"killed {case.moment} commit {case.commit}: " + "; ".join(part for part in parts if part)


def table(report: Report) -> str:
    """Draw the report."""
    head = ("killed", "commits", "kills", "resumed equal", "units done twice", "begun unjournaled", "processes left")
    rows: list[tuple[str, ...]] = [head]
    for moment in _MOMENTS:
        cases = [case for case in report.cases if case.moment == moment]
        figures = (
            len(cases),
            sum(case.killed for case in cases),
            sum(case.equal for case in cases),
            sum(len(case.twice) for case in cases),
            sum(len(case.unasked) for case in cases),
            sum(case.left for case in cases),
        )
        rows.append((moment, *map(str, figures)))
    return "\n".join("  ".join(cell.ljust(len(title)) for cell, title in zip(row, head, strict=True)) for row in rows)


def main(argv: list[str] | None = None) -> int:
    """Run the matrix in a temporary folder, which stays if something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m interlock.testing.kill_matrix", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="run only each N-th case")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    chosen = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="interlock-kill-matrix-"))

    def tell(case: Case) -> None:
        if not case.holds:
            sys.stderr.write(describe(case) + "\n")

    try:
        report = kill_matrix(folder, every=chosen.every, tell=tell)
    except UndisturbedError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if chosen.json:
        sys.stdout.write(json.dumps({"schema": 1, "holds": report.holds, **msgspec.to_builtins(report)}) + "\n")
    else:
        verdict = "all held" if report.holds else f"not all held; the cases that did not are kept in {folder}"
        sys.stdout.write(f"{table(report)}\n{report.commits} commits, {report.seconds:.0f} s: {verdict}\n")
    if report.holds:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main())
