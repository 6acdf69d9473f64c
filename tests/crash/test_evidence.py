"""The witnesses of the crash proofs: each tells the fault that it is there for."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from interlock.driver.worktrees import Worktrees
from interlock.store import connection
from interlock.testing.drivers import Killer, drive, fork, new_project, wait
from interlock.testing.evidence import Ending, Evidence, left
from interlock.testing.expected import strange
from interlock.testing.kept import astray, lost_changes
from interlock.testing.random_kills import FaultError, Spread

RUN = "20260101-000000-00000000"


def git(project: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=project, check=True, capture_output=True, timeout=60)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return new_project(tmp_path / "project")


def test_a_project_as_it_was_made_shows_no_fault(project: Path) -> None:
    assert lost_changes(project, RUN) == ()
    assert astray(project) == ()
    assert left(RUN, project, 0) == 0


def test_a_change_that_no_ref_holds_is_lost(project: Path) -> None:
    git(project, "update-ref", f"refs/interlock/{RUN}/mend.solo/1", "HEAD")
    (project / "changed").write_text("mend:solo 1 note.sh\nmend:solo 1 new.txt\nmend:solo 2 note.sh\n")
    assert lost_changes(project, RUN) == ("new.txt of mend:solo 1", "note.sh of mend:solo 2")


def test_a_worktree_that_is_not_listed_is_astray_and_a_folder_that_git_does_not_know_is_listed(project: Path) -> None:
    deep = project / ".interlock" / "worktrees" / RUN / "mend.solo"
    git(project, "worktree", "add", "--detach", str(project / ".interlock" / "elsewhere"))
    git(project, "worktree", "add", "--detach", str(deep / "1"))
    (deep / "2").mkdir()
    # as the state folder of a project that was opened has it
    (project / ".interlock" / ".gitignore").write_text("*\n")
    assert astray(project) == (f"unlisted: {project}/.interlock/elsewhere",)
    listed = {tree.path: tree.registered for tree in Worktrees(project, project / ".interlock").all()}
    assert listed == {f"{deep}/1": True, f"{deep}/2": False}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("checkout", "-qb", "other"), "branch.head other"),
        (("rm", "-q", "note.sh"), "note.sh"),
        (("stash",), "stash 1"),
        (("reset", "-q", "--hard", "HEAD"), "reset: moving to HEAD"),
    ],
)
def test_a_checkout_that_is_not_as_it_was_is_astray(project: Path, words: tuple[str, ...], said: str) -> None:
    if words == ("stash",):
        (project / "work.sh").write_text("changed")
    git(project, "-c", "user.name=a", "-c", "user.email=b", *words)
    assert any(said in line for line in astray(project))


def test_a_process_that_stands_in_the_project_is_left(project: Path) -> None:
    with subprocess.Popen(["sleep", "60"], cwd=project / ".git") as stray:
        assert left(RUN, project, 0) == 1
        stray.kill()
    assert left(RUN, project) == 0


def test_a_killer_hears_of_every_commit_that_the_database_makes(project: Path) -> None:
    true_raw: Any = vars(connection)["_raw"]

    def work() -> int:
        said: list[str] = []

        def traced(uri: str, busy_ms: int) -> Any:
            raw = true_raw(uri, busy_ms)
            raw.set_trace_callback(said.append)
            return raw

        killer = Killer("never", 0)
        with patch.object(connection, "_raw", traced):
            code = drive(killer)
        (project / "heard").write_text(f"{killer.commits} {said.count('COMMIT')}")
        return code

    assert wait(fork(project, work)) == 6
    heard, made = map(int, (project / "heard").read_text().split())
    assert heard == made > 0


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (Ending("completed", "ok", (), (), frozenset()), "the run is completed, ok"),
        (
            Ending("completed", "degraded", (("argv", "completed", b"[1,2]"),), (), frozenset()),
            "made otherwise than written down: argv, script, function, fan,",
        ),
    ],
)
def test_an_undisturbed_run_that_is_not_as_written_down_is_no_standard(ending: Ending, said: str) -> None:
    assert strange(ending).startswith(said)


def spread(*killed: tuple[int, str], woken: int = 1) -> Spread:
    """Kills that left so many of eight units completed, and an attempt in this state."""
    units = tuple((f"u{n}", "completed", None, None) for n in range(8))
    found = Spread(Ending("completed", "ok", (), units, frozenset()))
    for count, state in killed:
        ending = Ending("active", None, (), units[:count], frozenset())
        found.add(Evidence("r", ending, {("u", 1): state}, (), Counter()))
    found.woken = woken
    return found


@pytest.mark.parametrize(
    ("met", "said"),
    [
        (spread(*[(0, "started"), (2, "reserved"), (4, "started"), (7, "lost")] * 25), ""),
        (spread(*[(0, "started")] * 99, woken=0), ""),
        (spread(*[(0, "started"), (2, "started"), (5, "started")] * 40), "part 4 of 4 of a run"),
        (spread(*[(0, "lost"), (2, "lost"), (5, "lost"), (7, "lost")] * 25), "work under way often enough"),
        (
            spread(*[(0, "started"), (2, "started"), (5, "started"), (8, "started")] * 25, woken=0),
            "a driver that woke while another drove",
        ),
    ],
)
def test_kills_that_miss_a_part_of_a_run_prove_nothing(met: Spread, said: str) -> None:
    if not said:
        met.require()
        return
    with pytest.raises(FaultError, match=f"the kills missed {said} "):
        met.require()
