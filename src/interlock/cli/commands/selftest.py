"""`interlock selftest`: a look at whether what is promised holds on this host."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from interlock.cli.options import example, json_option
from interlock.cli.output import note, say, table, write_json
from interlock.cli.selftest import matrix
from interlock.cli.selftest.matrix import Case, Report
from interlock.cli.text import count, duration
from interlock.views.values import SCHEMA

_EVERY = 10


@click.command(epilog=example("interlock selftest", "interlock selftest --kill-matrix"))
@click.option("--kill-matrix", is_flag=True, help="Kill a driver before and after every journal commit, and resume.")
@json_option()
def command(*, kill_matrix: bool, as_json: bool) -> int:
    """Run a sample of every shape in a temporary folder; exits 1 if something promised does not hold.

    With --kill-matrix the sample is run once for each of its commits and moment, its driver killed there and
    the run resumed. A table tells what held; the folder stays if something did not.
    """
    folder = Path(tempfile.mkdtemp(prefix="interlock-selftest-"))
    began = time.monotonic()
    if not kill_matrix:
        ending, commits = matrix.undisturbed(folder)
        shutil.rmtree(folder, ignore_errors=True)
        if as_json:
            write_json({"schema": SCHEMA, "state": ending.state, "commits": commits, "holds": True})
        else:
            say(f"the sample run ended {ending.state} with {count(commits, 'commit')}")
        return 0
    report = _matrix(folder)
    if report.holds:
        shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        write_json({"schema": SCHEMA, "holds": report.holds, **msgspec.to_builtins(report)})
    else:
        _show(report, time.monotonic() - began, folder)
    return 0 if report.holds else 1


def _matrix(folder: Path) -> Report:
    done = 0

    def tell(case: Case, of: int) -> None:
        nonlocal done
        done += 1
        if not case.holds:
            note(f"killed {case.at} commit {case.commit}: {_fault(case)}")
        elif done % _EVERY == 0 and sys.stderr.isatty():
            note(f"{done} of {of} cases")

    return matrix.kill_matrix(folder, tell)


def _fault(case: Case) -> str:
    parts: Sequence[str] = (
        "" if case.equal else f"did not end as the undisturbed run ({case.note or 'other artifacts or states'})",
        f"done twice: {', '.join(case.twice)}" if case.twice else "",
        f"{count(case.left, 'process', 'processes')} left" if case.left else "",
    )
    return "; ".join(part for part in parts if part)


def _show(report: Report, seconds: float, folder: Path) -> None:
    widths = (8, 8, 8, 15, 18)
    rows = [_row(moment, [case for case in report.cases if case.at == moment]) for moment in ("before", "after")]
    table(("KILLED", "COMMITS", "KILLS", "RESUMED EQUAL", "UNITS DONE TWICE", "PROCESSES LEFT"), rows, widths)
    verdict = "all held" if report.holds else f"not all held; the failing cases are kept in {folder}"
    say(f"{verdict}, {duration(seconds * 1000)}")


def _row(moment: str, cases: Sequence[Case]) -> Sequence[str]:
    return (
        moment,
        str(len(cases)),
        str(sum(case.killed for case in cases)),
        str(sum(case.equal for case in cases)),
        str(sum(len(case.twice) for case in cases)),
        str(sum(case.left for case in cases)),
    )
