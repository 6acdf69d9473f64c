"""The kill matrix: for each commit of the sample run one driver killed before it and one after it, then resumed.

Every case has a project of its own. A case holds when the resumed run ends as the undisturbed one did, with the
same artifacts to the byte, no unit that the journal had completed ran again, and no process is left.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
import psutil

from interlock.dispatch.markers import VARIABLE, parse
from interlock.errors import InterlockError
from interlock.model.states import UnitState
from interlock.store.sqlite import SqliteStore

_FOLDER: Final = Path(__file__).parent
_FILES: Final = ("sample.md", "sample.py", "sample.sh")
_MOST_COMMITS: Final = 500
_SIDE_BY_SIDE: Final = 2
_CASE_S: Final = 120.0
_PROCESSES_GONE_S: Final = 10.0
_MOST_RESUMES: Final = 4


class Ending(msgspec.Struct, frozen=True):
    """What a run came to: state, outcome, and each step's state and artifact hash."""

    state: str
    outcome: str | None
    steps: tuple[tuple[str, str, str | None], ...]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One kill and what came of it."""

    at: str
    commit: int
    killed: bool
    equal: bool
    twice: tuple[str, ...]
    left: int
    note: str = ""

    @property
    def holds(self) -> bool:
        """Tell whether everything promised held."""
        return self.equal and not self.twice and not self.left


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole matrix."""

    commits: int
    cases: tuple[Case, ...]

    @property
    def holds(self) -> bool:
        """Tell whether every case held and at least one driver was killed."""
        return bool(self.cases) and all(case.holds for case in self.cases) and any(case.killed for case in self.cases)


class UndisturbedError(InterlockError):
    """The sample fails even when nobody is killed."""


def undisturbed(folder: Path) -> tuple[Ending, int]:
    """Run the sample to its end; return what it came to and how many commits it took."""
    project = _project(folder / "undisturbed")
    done = _drive(project, "never", 0)
    if done.returncode not in {0, 6}:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UndisturbedError(
            "selftest",
            f"the sample run fails here: {said[-1] if said else done.returncode}",
            "see what this host lacks: interlock doctor",
        )
    return _ending(project), int(done.stdout.split()[1])


def kill_matrix(folder: Path, tell: Callable[[Case, int], None]) -> Report:
    """Run every case in folders below `folder`; `tell` hears of each as it ends."""
    wanted, commits = undisturbed(folder)
    places = [(at, commit) for commit in range(1, min(commits, _MOST_COMMITS) + 1) for at in ("before", "after")]
    cases: list[Case] = []
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        for case in pool.map(lambda place: one_case(folder, wanted, *place), places):
            cases.append(case)
            tell(case, len(places))
    return Report(commits=commits, cases=tuple(cases))


def one_case(folder: Path, wanted: Ending, at: str, commit: int) -> Case:
    """Kill one driver, resume, and compare with how the run ends undisturbed."""
    project = _project(folder / f"{at}-{commit}")
    killed = _drive(project, at, commit).returncode == -9  # noqa: PLR2004 - SIGKILL
    completed = _completed(project)
    before = _ran(project)
    note = _resume(project)
    after = _ran(project)
    twice = tuple(sorted(unit for unit in completed if after[unit] > before[unit]))
    sent = len(_lines(project / "effects"))
    equal = not note and _ending(project) == wanted and sent == 1
    case = Case(at=at, commit=commit, killed=killed, equal=equal, twice=twice, left=_left(project), note=note)
    if case.holds:
        shutil.rmtree(project, ignore_errors=True)
    return case


def _resume(project: Path) -> str:
    """Drive until the run has ended; return what went wrong, or nothing."""
    said = ""
    for _ in range(_MOST_RESUMES):
        done = _drive(project, "never", 0)
        if done.returncode in {0, 6}:
            return ""
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
    return said.splitlines()[-1] if said else "it does not end"


def _project(folder: Path) -> Path:
    (folder / ".interlock").mkdir(parents=True, mode=0o700)
    for name in _FILES:
        shutil.copyfile(_FOLDER / name, folder / name)
    return folder


def _drive(project: Path, at: str, commit: int) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "interlock.cli.selftest.driver", str(project), "sample.md", at, str(commit)]
    return subprocess.run(
        argv, cwd=project, capture_output=True, check=False, timeout=_CASE_S, stdin=subprocess.DEVNULL
    )


def _completed(project: Path) -> frozenset[str]:
    """Units that the journal holds as completed."""
    with _journal(project) as store:
        runs = store.runs()
        if not runs:
            return frozenset()
        return frozenset(unit.id for unit in store.units(runs[0].id, state=UnitState.COMPLETED))


def _ending(project: Path) -> Ending:
    with _journal(project) as store:
        (run,) = store.runs()
        steps = tuple((step.id, step.state, step.artifact_hash) for step in store.steps(run.id))
        return Ending(run.state, run.outcome, steps)


def _journal(project: Path) -> SqliteStore:
    return SqliteStore.open(project / ".interlock" / "journal.db")


def _ran(project: Path) -> Counter[str]:
    return Counter(_lines(project / "ran"))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _left(project: Path) -> int:
    """How many marked processes work in the project still, once they had time to go."""
    deadline = time.monotonic() + _PROCESSES_GONE_S
    while (left := sum(1 for _ in _marked(project))) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _marked(project: Path) -> Iterator[psutil.Process]:
    with _journal(project) as store:
        ids = {run.id for run in store.runs()}
    for process in psutil.process_iter():
        try:
            marker = process.environ().get(VARIABLE, "")
        except (psutil.Error, OSError):
            continue
        if any(mark.run_id in ids for mark in parse(marker)):
            yield process
