from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.dispatch.git.conftest import Repo, create
from tests.stranger import as_stranger, give_to_stranger

from interlock.dispatch.git.base import IsolationError
from interlock.dispatch.git.command import Git
from interlock.dispatch.git.repository import find, head
from interlock.dispatch.git.snapshot import index_beside, snapshot_commit

REF = "refs/interlock/r1/base"


def test_a_clean_checkout_has_nothing_to_take_along(repo: Repo) -> None:
    assert snapshot_commit(repo.root, REF) is None
    assert REF not in repo.refs()


def test_uncommitted_work_is_taken_along_and_nothing_of_the_users_changes(repo: Repo) -> None:
    (repo.root / "a.txt").write_text("staged\n")
    repo.git("add", "a.txt")
    (repo.root / "a.txt").write_text("and changed again\n")
    (repo.root / "src/b.txt").unlink()
    (repo.root / "line\nbreak").write_text("new")
    (repo.root / "x.tmp").write_text("ignored")
    before = repo.users()
    made = snapshot_commit(repo.root, REF)
    assert made is not None
    assert repo.users() == before
    assert repo.refs()[REF] == made
    assert repo.git("rev-parse", f"{made}^") == repo.head()
    assert repo.show(made, "a.txt") == "and changed again"
    assert repo.files(made) == {".gitignore", "a.txt", '"line\\nbreak"'}


def test_a_stale_lock_of_the_users_index_is_neither_in_the_way_nor_removed(repo: Repo) -> None:
    (repo.root / "a.txt").write_text("changed\n")
    (repo.root / ".git/index.lock").touch()
    assert snapshot_commit(repo.root, REF) is not None
    assert (repo.root / ".git/index.lock").exists()


def test_a_checkout_in_the_middle_of_a_merge_is_taken_as_its_files_are(repo: Repo) -> None:
    repo.git("checkout", "-qb", "side")
    repo.commit({"a.txt": "side\n"})
    repo.git("checkout", "-q", "main")
    repo.commit({"a.txt": "main\n"})
    with pytest.raises(AssertionError):
        repo.git("merge", "side")
    made = snapshot_commit(repo.root, REF)
    assert made is not None
    assert "<<<<<<<" in repo.show(made, "a.txt")
    assert repo.git("ls-files", "-u") != ""


def test_a_file_that_cannot_be_read_is_told(make_repo: Callable[..., Repo]) -> None:
    # pytest's own folder is closed to all others
    with tempfile.TemporaryDirectory() as outside:
        root = Path(outside, "repo")
        create(root)
        repo = make_repo(root=root)
        repo.commit({"open": "x"})
        (root / "closed").write_text("x")
        (root / "closed").chmod(stat.S_IWUSR)
        give_to_stranger(Path(outside))

        def take_along() -> str:
            os.environ["HOME"] = outside
            with pytest.raises(IsolationError) as caught:
                snapshot_commit(root, REF)
            return caught.value.message

        said = as_stranger(take_along)
        assert said.startswith(f"uncommitted work in {root} cannot be taken along: error: ")
        assert "closed" in said


def commit_of(root: Path, environ: dict[str, str] | None = None) -> str:
    git = Git(environ)
    find(git, root)
    return head(git, root)


def refused(root: Path, environ: dict[str, str] | None = None) -> tuple[str, str, str]:
    with pytest.raises(IsolationError) as caught:
        commit_of(root, environ)
    return caught.value.code, caught.value.message, caught.value.hint


def test_the_commit_of_a_checkout_is_its_heads(repo: Repo) -> None:
    assert commit_of(repo.root / "src") == repo.head()


def test_no_repository_is_told(tmp_path: Path) -> None:
    assert refused(tmp_path) == ("no-repository", f"{tmp_path} is in no git repository", "make one: git init")


def test_a_repository_without_commits_is_told(tmp_path: Path) -> None:
    create(tmp_path / "empty")
    code, said, hint = refused(tmp_path / "empty")
    assert (code, hint) == ("no-commits", "make one: git add -A && git commit")
    assert said == f"the repository at {tmp_path / 'empty'} has no commit yet"


def test_a_bare_repository_is_told(repo: Repo, tmp_path: Path) -> None:
    repo.git("clone", "-q", "--bare", str(repo.root), str(tmp_path / "bare.git"))
    code, _, hint = refused(tmp_path / "bare.git")
    assert (code, hint) == ("bare-repository", "work in a checkout of it: git worktree add FOLDER")


def test_a_worktree_of_a_bare_repository_is_like_any(repo: Repo, tmp_path: Path) -> None:
    repo.git("clone", "-q", "--bare", str(repo.root), str(tmp_path / "bare.git"))
    repo.git("worktree", "add", "-q", "--detach", str(tmp_path / "out"), at=tmp_path / "bare.git")
    assert commit_of(tmp_path / "out") == repo.head()


def test_a_repository_of_another_user_is_told_with_what_trusts_it(repo: Repo) -> None:
    code, said, hint = refused(repo.root, {**os.environ, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"})
    assert (code, hint) == (
        "unsafe-directory",
        f"if you trust it: git config --global --add safe.directory {repo.root}",
    )
    assert said == f"git refuses the repository at {repo.root}, since another user owns it"


def test_a_machine_without_git_is_told(repo: Repo, tmp_path: Path) -> None:
    assert refused(repo.root, {"PATH": str(tmp_path)})[:2] == ("no-git", "git was not found")


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    assert refused(tmp_path / "gone")[1] == f"there is no folder {tmp_path / 'gone'}"


def test_a_git_that_hangs_is_ended(repo: Repo) -> None:
    git = Git(os.environ, timeout_s=0.2)
    with pytest.raises(IsolationError, match=r"`git -c` in .* did not end within 0.2 s"):
        git(repo.root, "-c", "alias.hang=!sleep 1000", "hang")


def test_what_a_kill_leaves_of_a_copied_index_goes_with_its_worktree(repo: Repo, tmp_path: Path) -> None:
    git, linked = Git(), tmp_path / "linked"
    repo.git("worktree", "add", "-q", "--detach", str(linked))
    admin = repo.root / ".git/worktrees/linked"
    with index_beside(git, str(admin), str(linked)) as env:
        assert Path(env["GIT_INDEX_FILE"]).parent.parent == admin
        repo.git("worktree", "remove", "--force", str(linked))
    assert not admin.exists()
    with index_beside(git, str(repo.root / ".git"), str(repo.root)) as env:
        assert not Path(env["GIT_INDEX_FILE"]).is_relative_to(repo.root)
