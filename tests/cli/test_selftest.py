"""The selftest: its sample runs, its kills are resumed, and a case that fails is not hidden."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from interlock.cli.selftest import matrix
from interlock.cli.selftest.matrix import Case, Report

HELD = Case(at="before", commit=1, killed=True, equal=True, twice=(), left=0)


def test_the_sample_of_every_shape_runs_here(
    interlock: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = interlock("selftest", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "completed"


@pytest.mark.parametrize("place", [("before", 1), ("after", 1), ("after", 9)])
def test_a_driver_killed_at_a_commit_is_resumed_to_the_same_end(place: tuple[str, int], tmp_path: Path) -> None:
    wanted, commits = matrix.undisturbed(tmp_path)
    assert commits > 9
    case = matrix.one_case(tmp_path, wanted, *place)
    assert case.holds, case
    assert case.killed


@pytest.mark.parametrize(
    "fault", [{"equal": False}, {"twice": ("a:solo",)}, {"left": 1}], ids=["other end", "done twice", "process left"]
)
def test_one_case_that_does_not_hold_fails_the_matrix(fault: dict[str, object]) -> None:
    assert Report(commits=1, cases=(HELD,)).holds
    assert not Report(commits=1, cases=(HELD, msgspec.structs.replace(HELD, **fault))).holds


def test_a_matrix_that_killed_nobody_proves_nothing() -> None:
    assert not Report(commits=1, cases=(msgspec.structs.replace(HELD, killed=False),)).holds
    assert not Report(commits=1, cases=()).holds
