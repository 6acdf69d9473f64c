"""What is kept in worktrees, from the command line: real git, real processes, no journal needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interlock.dispatch.git.base import Kept, WorktreeAsk
from interlock.dispatch.git.snapshot import snapshot_commit
from interlock.dispatch.git.trees import Trees

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
VERBS = ("list", "diff", "apply", "drop")
RUN = "01JRUN"


def git(at: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=at, capture_output=True, text=True, check=True).stdout.rstrip("\n")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / ".interlock").mkdir()
    (tmp_path / ".interlock/.gitignore").write_text("*\n")
    (tmp_path / ".gitignore").write_text("*.tmp\n")
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 10)))
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


@pytest.fixture
def trees() -> Iterator[Trees]:
    made = Trees(os.environ)
    yield made
    made.close()


def ask(project: Path, unit: str) -> WorktreeAsk:
    return WorktreeAsk(
        root=str(project),
        commit=git(project, "rev-parse", "HEAD"),
        path=str(project / ".interlock/worktrees" / RUN / unit / "1"),
        ref=f"refs/interlock/{RUN}/{unit}/1",
    )


def leave(project: Path, trees: Trees, unit: str, files: dict[str, str]) -> Kept:
    asked = ask(project, unit)
    folder = trees.prepare(asked)
    for name, text in files.items():
        (folder / name).write_text(text)
    kept = trees.settle(asked)
    assert kept is not None
    return kept


def changed(number: int, text: str) -> str:
    return "".join(f"{text if n == number else n}\n" for n in range(1, 10))


def kept_now(interlock: Interlock, project: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(interlock("worktrees", "list", "--json", cwd=project).stdout)
    return found


def test_whatever_is_told_of_a_worktree_as_json_is_told_in_one_form(
    project: Path, trees: Trees, interlock: Interlock
) -> None:
    leave(project, trees, "fix-1", {"a.txt": changed(1, "mended")})
    told = {
        verb: json.loads(interlock("worktrees", verb, RUN, "fix-1", "--json", cwd=project).stdout) for verb in VERBS
    }
    first = {verb: found[0] if isinstance(found, list) else found for verb, found in told.items()}
    alike = set(first["drop"])
    assert {"schema", "run", "unit", "attempt", "commit", "path"} <= alike
    assert {verb: set(found) - alike for verb, found in first.items()} == {
        "list": {"id", "index", "item"},
        "diff": {"patch"},
        "apply": {"applied"},
        "drop": set(),
    }
    assert {found["schema"] for found in first.values()} == {1}


def test_a_folder_that_is_gone_is_not_shown_as_one(project: Path, trees: Trees, interlock: Interlock) -> None:
    kept = leave(project, trees, "fix-1", {"a.txt": changed(1, "mended")})
    assert kept.path in interlock("worktrees", "list", cwd=project).stdout
    shutil.rmtree(kept.path)
    (line,) = interlock("worktrees", "list", cwd=project).stdout.splitlines()[1:]
    assert line.split() == [RUN, "fix-1/1", "-", kept.commit[:12], "1", "-"]


def test_what_is_kept_is_listed_without_a_journal(project: Path, trees: Trees, interlock: Interlock) -> None:
    kept = leave(project, trees, "fix-1", {"a.txt": changed(1, "mended"), "new.txt": "x"})
    (one,) = kept_now(interlock, project)
    assert one == {
        "schema": 1,
        "run": RUN,
        "unit": "fix-1",
        "attempt": "1",
        "ref": kept.ref,
        "commit": kept.commit,
        "base": kept.base,
        "files": 2,
        "path": kept.path,
        "registered": True,
        "beside": [],
        "id": None,
        "index": None,
        "item": None,
    }
    assert f"{RUN}  fix-1/1  -     {kept.commit[:12]}" in interlock("worktrees", "list", cwd=project).stdout


def test_a_worktree_in_use_and_a_leftover_are_listed_too(project: Path, trees: Trees, interlock: Interlock) -> None:
    (trees.prepare(ask(project, "fix-1")) / "a.txt").write_text("from before\n")
    trees.prepare(ask(project, "fix-1"))
    found = kept_now(interlock, project)
    assert [(one["attempt"], one["files"], one["registered"]) for one in found] == [
        ("1", 0, True),
        ("1.leftover-1", 1, True),
    ]
    assert found[0]["commit"] is None
    patch = interlock("worktrees", "diff", RUN, "fix-1/1.leftover-1", cwd=project).stdout
    assert "+from before" in patch


def test_what_was_moved_aside_and_git_knows_nothing_of_is_listed_and_dropped(
    project: Path, trees: Trees, interlock: Interlock
) -> None:
    path = Path(ask(project, "fix-1").path)
    path.parent.mkdir(parents=True)
    path.write_text("somebody's")
    trees.prepare(ask(project, "fix-1"))
    aside = Path(f"{path}.leftover-1")
    (one,) = [one for one in kept_now(interlock, project) if one["path"] == str(aside)]
    assert (one["commit"], one["registered"]) == (None, False)
    refused = interlock("worktrees", "apply", RUN, "fix-1/1.leftover-1", cwd=project)
    assert refused.returncode == 2
    assert interlock("worktrees", "drop", RUN, "fix-1/1.leftover-1", cwd=project).returncode == 0
    assert not aside.exists()
    assert path.is_dir()


def test_nothing_kept_is_said(project: Path, interlock: Interlock) -> None:
    assert interlock("worktrees", "list", cwd=project).stdout.startswith("nothing is kept")
    refused = interlock("worktrees", "list", "01X", cwd=project)
    assert (refused.returncode, "no worktree of 01X is kept" in refused.stderr) == (2, True)


def test_the_diff_is_a_patch_from_where_it_began(project: Path, trees: Trees, interlock: Interlock) -> None:
    leave(project, trees, "fix-1", {"a.txt": changed(1, "mended")})
    patch = interlock("worktrees", "diff", RUN, "fix-1", cwd=project).stdout
    subprocess.run(["git", "apply"], cwd=project, input=patch, text=True, check=True)
    assert (project / "a.txt").read_text() == changed(1, "mended")


def test_applying_merges_with_what_came_since_and_touches_files_only(
    project: Path, trees: Trees, interlock: Interlock
) -> None:
    leave(project, trees, "fix-1", {"a.txt": changed(1, "mended"), "new.txt": "x"})
    (project / "a.txt").write_text(changed(9, "later"))
    git(project, "commit", "-qam", "later")
    (project / "staged.txt").write_text("mine")
    git(project, "add", "staged.txt")
    before = ((project / ".git/index").read_bytes(), git(project, "rev-parse", "HEAD"))
    done = interlock("worktrees", "apply", RUN, "fix-1", cwd=project)
    assert done.stdout.splitlines()[:2] == ["a.txt", "new.txt"]
    assert (project / "a.txt").read_text() == changed(1, "mended").replace("9\n", "later\n")
    assert ((project / ".git/index").read_bytes(), git(project, "rev-parse", "HEAD")) == before
    assert git(project, "status", "--porcelain").splitlines() == [" M a.txt", "A  staged.txt", "?? new.txt"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.txt", changed(9, "mine"), "uncommitted changes of yours would be overwritten: a.txt"),
        ("new.txt", "mine", "conflicts in new.txt"),
        ("ignored.tmp", "mine", "uncommitted changes of yours would be overwritten: ignored.tmp"),
    ],
)
def test_applying_never_overwrites_what_is_not_committed(
    project: Path, trees: Trees, interlock: Interlock, name: str, text: str, said: str
) -> None:
    asked = ask(project, "fix-1")
    folder = trees.prepare(asked)
    for one in ("a.txt", "new.txt", "ignored.tmp"):
        (folder / one).write_text(changed(1, "mended"))
    git(folder, "add", "--force", "ignored.tmp")
    trees.settle(asked)
    (project / name).write_text(text)
    before = git(project, "status", "--porcelain")
    refused = interlock("worktrees", "apply", RUN, cwd=project)
    assert (refused.returncode, said in refused.stderr) == (1, True), refused.stderr
    assert (project / name).read_text() == text
    assert git(project, "status", "--porcelain") == before


def test_applying_what_does_not_fit_changes_nothing(project: Path, trees: Trees, interlock: Interlock) -> None:
    leave(project, trees, "fix-1", {"a.txt": changed(1, "mended"), "new.txt": "x"})
    (project / "a.txt").write_text(changed(1, "otherwise"))
    git(project, "commit", "-qam", "later")
    refused = interlock("worktrees", "apply", RUN, cwd=project)
    assert "it does not fit to your checkout: conflicts in a.txt" in refused.stderr
    assert git(project, "status", "--porcelain") == ""


def test_work_begun_on_uncommitted_changes_comes_back_to_them(
    project: Path, trees: Trees, interlock: Interlock
) -> None:
    (project / "a.txt").write_text(changed(5, "mine"))
    base = snapshot_commit(project, f"refs/interlock/{RUN}/base")
    assert base is not None
    asked = WorktreeAsk(root=str(project), commit=base, path=ask(project, "fix-1").path, ref=ask(project, "fix-1").ref)
    (trees.prepare(asked) / "a.txt").write_text(changed(5, "mine and theirs"))
    trees.settle(asked)
    assert interlock("worktrees", "apply", RUN, cwd=project).returncode == 0
    assert (project / "a.txt").read_text() == changed(5, "mine and theirs")


def test_a_repository_inside_is_not_said_to_be_applied(project: Path, trees: Trees, interlock: Interlock) -> None:
    asked = ask(project, "fix-1")
    inner = trees.prepare(asked) / "sub"
    (inner.parent / "new.txt").write_text("x")
    git(inner.parent, "init", "-q", "sub")
    (inner / "file").write_text("x")
    git(inner, "add", "-A")
    git(inner, "commit", "-qm", "inside")
    kept = trees.settle(asked)
    assert kept is not None
    refused = interlock("worktrees", "apply", RUN, "fix-1", cwd=project)
    assert refused.returncode == 1
    assert "another repository inside was changed, which is no matter of files: sub" in refused.stderr
    assert f"merge it by hand: git merge {kept.commit[:12]}" in refused.stderr
    assert git(project, "status", "--porcelain") == ""


def test_applying_twice_changes_nothing_the_second_time(project: Path, trees: Trees, interlock: Interlock) -> None:
    leave(project, trees, "fix-1", {"a.txt": changed(1, "mended"), "new.txt": "x"})
    assert interlock("worktrees", "apply", RUN, "fix-1", cwd=project).returncode == 0
    git(project, "add", "-A")
    git(project, "commit", "-qm", "applied")
    again = interlock("worktrees", "apply", RUN, "fix-1", cwd=project)
    assert (again.returncode, again.stdout) == (
        0,
        f"applied 0 files of {RUN} fix-1/1; see them with `git status` and `git diff`\n",
    )
    assert git(project, "status", "--porcelain") == ""


def test_a_beginning_that_fits_to_several_drops_nothing(project: Path, trees: Trees, interlock: Interlock) -> None:
    for unit in ("fix-1", "fix-2"):
        leave(project, trees, unit, {"new.txt": unit})
    refused = interlock("worktrees", "drop", RUN, "fix", cwd=project)
    assert refused.returncode == 2
    assert "dropped nothing: 'fix' is the beginning of 2: fix-1/1, fix-2/1" in refused.stderr
    assert len(kept_now(interlock, project)) == 2
    assert interlock("worktrees", "drop", RUN, "fix-2/", cwd=project).stdout == "dropped 1 worktree\n"
    assert interlock("worktrees", "drop", RUN, "fix", "--yes", cwd=project).stdout == "dropped 1 worktree\n"


def test_when_one_cannot_be_dropped_none_is(project: Path, trees: Trees, interlock: Interlock) -> None:
    leave(project, trees, "fix-1", {"new.txt": "1"})
    locked = leave(project, trees, "fix-2", {"new.txt": "2"})
    git(project, "worktree", "lock", "--reason", "in use", locked.path)
    refused = interlock("worktrees", "drop", RUN, "--yes", cwd=project)
    assert refused.returncode == 1
    assert f"the worktree {locked.path} is locked: in use" in refused.stderr
    git(project, "worktree", "unlock", locked.path)
    git(project, "worktree", "add", "--detach", f"{locked.path}/inner")
    refused = interlock("worktrees", "drop", RUN, "--yes", cwd=project)
    assert f"there is a worktree of somebody's in it: {locked.path}/inner" in refused.stderr
    assert len(kept_now(interlock, project)) == 2


def test_dropping_takes_folder_registration_and_refs(project: Path, trees: Trees, interlock: Interlock) -> None:
    for number in range(2):
        leave(project, trees, f"fix-{number}", {"a.txt": changed(1, "mended")})
    refused = interlock("worktrees", "drop", RUN, cwd=project)
    assert (refused.returncode, len(kept_now(interlock, project))) == (2, 2)
    assert interlock("worktrees", "drop", RUN, "fix-0", cwd=project).stdout == "dropped 1 worktree\n"
    assert [one["unit"] for one in kept_now(interlock, project)] == ["fix-1"]
    interlock("worktrees", "drop", "--yes", cwd=project)
    assert kept_now(interlock, project) == []
    assert git(project, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert len(git(project, "worktree", "list").splitlines()) == 1
    assert list((project / ".interlock/worktrees").iterdir()) == []


def test_gc_removes_worktrees_that_hold_nothing_and_registrations_without_folders(
    project: Path, trees: Trees, interlock: Interlock
) -> None:
    kept = leave(project, trees, "kept", {"a.txt": changed(1, "mended")})
    same, gone = (ask(project, name) for name in ("same", "gone"))
    trees.prepare(same)
    folder = trees.prepare(gone)
    (folder / "a.txt").write_text("mine\n")
    git(folder, "commit", "-qam", "mine")
    made = git(folder, "rev-parse", "HEAD")
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    git(project, "worktree", "add", "-q", "--detach", str(project.parent / f"{project.name}-users"))
    subprocess.run(["rm", "-rf", str(project.parent / f"{project.name}-users")], check=True)
    (project / ".interlock/journal.db").touch()
    asked = ("gc", "--json")
    would = json.loads(interlock(*asked, "--dry-run", cwd=project).stdout)["worktrees"]
    assert sorted(would) == sorted(json.loads(interlock(*asked, cwd=project).stdout)["worktrees"])
    assert sorted(would) == sorted([same.path, gone.path])
    listed = git(project, "worktree", "list", "--porcelain")
    users = project.parent / f"{project.name}-users"
    assert {line for line in listed.splitlines() if line.startswith("worktree ")} == {
        f"worktree {path}" for path in (project, kept.path, users)
    }
    assert git(project, "rev-parse", gone.ref) == made
