"""The witnesses of the crash proofs: each tells the fault that it is there for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from interlock.driver.worktrees import Worktrees
from interlock.testing.drivers import new_project
from interlock.testing.evidence import left
from interlock.testing.kept import astray, lost_changes

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
