"""The kill matrix: for each commit of the sample run one driver killed before it and one after it, then resumed.

The same for each commit of a fork of that run. Run as `python -m interlock.testing.kill_matrix [--only run|fork] [--every N] [--first] [--json]`;
exits 1 if anything does not hold. A case holds when the resumed run ends as the undisturbed one, byte for byte, with
the same merged files; nothing ran that was not journaled before; no unit journaled as completed, or taken over, was
dispatched or ran again; the outside effect happened once; every completed step has the verdicts its gate asks for; every
change in a worktree is in git and every worktree is listed; and no process is left.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec

from interlock.testing.cases import MOMENTS, VERBS, Case, Report, describe, table
from interlock.testing.drivers import new_project
from interlock.testing.killing import Forks, UndisturbedError, run_case, undisturbed

_SIDE_BY_SIDE: Final = min(8, max(2, os.cpu_count() or 2))
Place = tuple[str, int]


def kill_matrix(
    folder: Path,
    *,
    verbs: Collection[str] = VERBS,
    every: int = 1,
    first: bool = False,
    tell: Callable[[Case], None] = lambda _case: None,
) -> Report:
    """Run all cases of these verbs (or each `every`-th) in projects below `folder`. Raises UndisturbedError.

    With `first` each worker stops at its first case that does not hold.
    """
    began = time.monotonic()
    wanted, commits = undisturbed(new_project(folder / "undisturbed"))
    wanted_fork, fork_commits = Forks(new_project(folder / "forked")).undisturbed()
    of_runs = _places(commits, every) if "run" in verbs else []
    of_forks = _places(fork_commits, every) if "fork" in verbs else []

    def work(number: int) -> Iterator[Case]:
        for moment, commit in of_runs[number::_SIDE_BY_SIDE]:
            project = new_project(folder / f"{moment}-{commit}")
            yield (case := run_case(project, wanted, moment, commit))
            if case.holds:
                shutil.rmtree(project, ignore_errors=True)
        if not (mine := of_forks[number::_SIDE_BY_SIDE]):
            return
        forks = Forks(new_project(folder / f"forks-{number}"))
        for moment, commit in mine:
            yield forks.run_case(wanted_fork, moment, commit)

    cases = []
    for case in _side_by_side(lambda number: _until_fault(work(number)) if first else work(number)):
        cases.append(case)
        tell(case)
    cases.sort(key=lambda case: (case.verb == "fork", case.commit, case.moment == "after"))
    seconds = time.monotonic() - began
    return Report(commits=commits, fork_commits=fork_commits, cases=tuple(cases), seconds=seconds)


def _until_fault(cases: Iterator[Case]) -> Iterator[Case]:
    for case in cases:
        yield case
        if not case.holds:
            return


def _places(commits: int, every: int) -> list[Place]:
    return [(moment, commit) for commit in range(1, commits + 1) for moment in MOMENTS][::every]


def _side_by_side(work: Callable[[int], Iterator[Case]]) -> Iterator[Case]:
    """Let a few forked workers do their share of the cases, each of which tells of its own through one pipe."""
    reading, writing = os.pipe()
    workers = []
    for number in range(_SIDE_BY_SIDE):
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _tell(work(number), writing)
        workers.append(pid)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        for line in told:
            yield msgspec.json.decode(line, type=Case)
    ends = [os.waitpid(pid, 0)[1] for pid in workers]
    if any(ends):
        raise UndisturbedError("a worker of the matrix died, so not all cases were tried")


def _tell(cases: Iterator[Case], writing: int) -> None:
    """Write each case to the pipe, then end; in a forked worker."""
    code = 1
    try:
        for case in cases:
            os.write(writing, msgspec.json.encode(case) + b"\n")
        code = 0
    except UndisturbedError as error:
        sys.stderr.write(f"error: {error}\n")
    except Exception:  # noqa: BLE001 - whatever it is, this worker ends here and tells
        traceback.print_exc()
    finally:
        os._exit(code)


def main(argv: list[str] | None = None) -> int:
    """Run the matrix in a temporary folder, which stays if something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m interlock.testing.kill_matrix", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="run only each N-th case")
    parser.add_argument("--only", choices=VERBS, help="kill only drivers of runs, or only of forks")
    parser.add_argument("--first", action="store_true", help="stop soon after the first case that does not hold")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    chosen = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="interlock-kill-matrix-"))

    def tell(case: Case) -> None:
        if not case.holds:
            sys.stderr.write(describe(case) + "\n")

    try:
        verbs = [chosen.only] if chosen.only else VERBS
        report = kill_matrix(folder, verbs=verbs, every=chosen.every, first=chosen.first, tell=tell)
    except UndisturbedError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if chosen.json:
        sys.stdout.write(json.dumps({"schema": 1, "holds": report.holds, **msgspec.to_builtins(report)}) + "\n")
    else:
        verdict = "all held" if report.holds else f"not all held; the cases that did not are kept in {folder}"
        sys.stdout.write(
            f"{table(report)}\n{report.commits} commits of a run, {report.fork_commits} of a fork, {report.seconds:.0f} s: {verdict}\n"
        )
    if report.holds:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main())
