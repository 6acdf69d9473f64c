from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.dispatch.git.conftest import Repo

from interlock.dispatch.git.base import IsolationError
from interlock.dispatch.git.stash_list import take_off
from interlock.dispatch.git.trees import Trees


def test_a_worktree_begins_detached_at_its_commit_and_is_a_toplevel_of_its_own(repo: Repo) -> None:
    first = repo.head()
    repo.commit({"a.txt": "later\n"})
    folder = repo.trees.prepare(repo.ask("u", commit=first))
    assert repo.head(folder) == first
    assert repo.git("rev-parse", "--show-toplevel", at=folder) == str(folder)
    assert not (repo.root / ".git/worktrees/1/HEAD").read_text().startswith("ref:")


def test_the_folder_to_work_in_is_the_steps_in_the_project_below_the_toplevel(
    repo: Repo, make_repo: Callable[..., Repo]
) -> None:
    repo.commit({"sub/project/.keep": "", "sub/project/deep/x": ""})
    project = make_repo(root=repo.root / "sub/project")
    ask = project.ask("u", cwd="deep")
    assert project.trees.prepare(ask) == Path(ask.path, "sub/project/deep")


def test_a_folder_outside_the_worktree_is_refused_and_leaves_nothing(repo: Repo) -> None:
    with pytest.raises(IsolationError, match=r"the step's folder \.\./\.\. leads out of its worktree"):
        repo.trees.prepare(repo.ask("u", cwd="../.."))
    assert repo.registered() == []


def test_a_folder_that_is_not_committed_is_told_and_leaves_nothing(repo: Repo) -> None:
    (repo.root / "new").mkdir()
    with pytest.raises(IsolationError, match="the folder new is not in commit") as caught:
        repo.trees.prepare(repo.ask("u", cwd="new"))
    assert caught.value.hint == "commit it, or take uncommitted work along"
    assert repo.registered() == []


def test_an_unchanged_worktree_is_removed_with_its_registration_and_the_folders_above(repo: Repo) -> None:
    before = repo.users()
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    (folder / "x.tmp").write_text("ignored")
    assert repo.settle(ask) is None
    assert repo.registered() == []
    assert list((repo.root / ".interlock/worktrees").iterdir()) == []
    assert repo.users() == before


def test_uncommitted_changes_are_kept_as_a_commit_and_the_folder_stays(repo: Repo) -> None:
    before = repo.users()
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    (folder / "a.txt").write_text("changed\n")
    (folder / "new.txt").write_text("new\n")
    (folder / "src/b.txt").unlink()
    (folder / "x.tmp").write_text("ignored")
    kept = repo.settle(ask)
    assert kept is not None
    assert kept.base == ask.commit
    assert repo.refs()[ask.ref] == kept.commit
    assert repo.show(kept.commit, "a.txt") == "changed"
    assert repo.files(kept.commit) == {".gitignore", "a.txt", "new.txt", *({".interlock/.gitignore"} & set())}
    assert repo.git("rev-parse", f"{kept.commit}^") == ask.commit
    assert repo.head(folder) == ask.commit
    assert repo.users() == before
    assert repo.settle(ask) is not None


def test_settled_again_by_another_what_is_kept_stays_the_same_commit(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    (folder / "a.txt").write_text("changed\n")
    kept = repo.settle(ask)
    other = Repo(repo.root, Trees({**os.environ, "GIT_COMMITTER_DATE": "2001-01-01T00:00:00Z"}))
    assert other.settle(ask) == kept
    assert kept is not None
    assert repo.refs()[ask.ref] == kept.commit
    assert f"{ask.ref}.commit-1" not in repo.refs()


def test_what_is_kept_stays_beside_what_somebody_made_of_its_folder(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    (folder / "a.txt").write_text("changed\n")
    kept = repo.settle(ask)
    (folder / "a.txt").write_text("changed by hand\n")
    found = Repo(repo.root, Trees()).settle(ask)
    assert kept is not None
    assert found is not None
    assert repo.show(repo.refs()[ask.ref], "a.txt") == "changed by hand"
    assert repo.refs()[f"{ask.ref}.commit-1"] == kept.commit


def test_what_is_kept_stays_when_its_folder_was_deleted(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    repo.commit({"b.txt": "committed"}, at=folder)
    (folder / "a.txt").write_text("changed\n")
    kept = repo.settle(ask)
    shutil.rmtree(folder)
    assert Repo(repo.root, Trees()).settle(ask) == kept
    assert kept is not None
    assert repo.refs()[ask.ref] == kept.commit
    assert repo.registered() == []


def test_what_a_unit_committed_is_kept_as_it_is(repo: Repo) -> None:
    ask = repo.ask()
    made = repo.commit({"a.txt": "mine\n"}, at=repo.trees.prepare(ask))
    kept = repo.settle(ask)
    assert kept is not None
    assert kept.commit == made == repo.refs()[ask.ref]


def test_a_commit_that_was_amended_is_kept_in_both_forms(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    first = repo.commit({"a.txt": "mine\n"}, at=folder)
    repo.git("commit", "--amend", "-qm", "better", at=folder)
    kept = repo.settle(ask)
    assert kept is not None
    assert kept.commit == repo.head(folder) != first
    assert repo.refs()[f"{ask.ref}.commit-1"] == first


def test_a_commit_that_was_reset_away_keeps_the_worktree(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    made = repo.commit({"a.txt": "mine\n"}, at=folder)
    repo.git("reset", "-q", "--hard", ask.commit, at=folder)
    kept = repo.settle(ask)
    assert kept is not None
    assert (kept.commit, repo.refs()[f"{ask.ref}.commit-1"]) == (ask.commit, made)


def test_a_branch_that_a_unit_made_stays_and_the_users_stay_where_they_are(repo: Repo) -> None:
    repo.git("branch", "users")
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    repo.git("checkout", "-qb", "units", at=folder)
    made = repo.commit({"a.txt": "mine\n"}, at=folder)
    kept = repo.settle(ask)
    assert kept is not None
    refs = repo.refs()
    assert kept.commit == refs["refs/heads/units"] == made
    assert refs["refs/heads/users"] == refs["refs/heads/main"] == ask.commit


def test_a_units_stash_is_kept_under_a_ref_and_leaves_the_users_list_as_it_was(repo: Repo) -> None:
    (repo.root / "a.txt").write_text("the user's\n")
    repo.git("stash")
    before = repo.users()
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    (folder / "a.txt").write_text("the unit's\n")
    repo.git("stash", at=folder)
    kept = repo.settle(ask)
    assert kept is not None
    assert kept.commit == ask.commit
    assert repo.show(f"{ask.ref}.stash-1", "a.txt") == "the unit's"
    assert repo.users() == before


def test_the_only_stash_goes_whole(repo: Repo) -> None:
    before = repo.users()
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    (folder / "a.txt").write_text("the unit's\n")
    repo.git("stash", at=folder)
    assert repo.settle(ask) is not None
    assert repo.users() == before


def test_a_stash_is_its_units_also_when_another_unit_ends_first(repo: Repo) -> None:
    stashing, other = repo.ask(), repo.ask()
    folder = repo.trees.prepare(stashing)
    (repo.trees.prepare(other) / "new.txt").write_text("x")
    (folder / "a.txt").write_text("stashed\n")
    repo.git("stash", at=folder)
    assert repo.settle(other) is not None
    assert repo.settle(stashing) is not None
    assert f"{other.ref}.stash-1" not in repo.refs()
    assert repo.git("show", f"{stashing.ref}.stash-1:a.txt") == "stashed"
    assert repo.git("stash", "list") == ""


def test_a_worktree_that_is_just_being_made_keeps_no_stash_from_its_unit(repo: Repo) -> None:
    before = repo.users()
    ask, other = repo.ask(), repo.ask()
    folder = repo.trees.prepare(ask)
    repo.git("worktree", "add", "-q", "--detach", other.path, other.commit)
    (folder / "a.txt").write_text("stashed\n")
    repo.git("stash", at=folder)
    assert repo.settle(ask) is not None
    assert repo.git("show", f"{ask.ref}.stash-1:a.txt") == "stashed"
    assert repo.users() == before


def test_taking_a_stash_off_spares_what_is_pushed_in_that_moment(repo: Repo) -> None:
    users = repo.root / "a.txt"
    pushed: list[str] = []
    stop = threading.Event()

    def push() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            users.write_text(f"{number}\n")
            # a lock that is held too long is told, and nothing is stashed then
            if not subprocess.run(["git", "stash", "-q"], cwd=repo.root, capture_output=True, check=False).returncode:
                pushed.append(str(number))
            repo.git("checkout", "-q", "--", ".")

    user = threading.Thread(target=push)
    user.start()
    taken: list[str] = []
    for _ in range(12):
        tree, head = repo.git("rev-parse", "HEAD^{tree}"), repo.head()
        index = repo.git("commit-tree", tree, "-p", head, "-m", "index")
        made = repo.git("commit-tree", tree, "-p", head, "-p", index, "-m", f"WIP on (no branch): {len(taken)}")
        try:
            repo.git("stash", "store", "-m", f"unit {len(taken)}", made)
        except AssertionError:
            continue
        taken.append(made)
        take_off(repo.trees._git, str(repo.root / ".git"), made)  # noqa: SLF001 - any git will do
    stop.set()
    user.join()
    listed = repo.git("stash", "list", "--format=%gs").splitlines()
    assert taken
    assert not [line for line in listed if line.startswith("unit")]
    kept = [repo.git("show", f"stash@{{{n}}}:a.txt") for n in range(len(listed))]
    assert kept == pushed[::-1]
    assert repo.git("rev-parse", "--verify", "--quiet", "refs/stash") == repo.git("rev-parse", "stash@{0}")


def test_a_stash_that_the_user_makes_meanwhile_stays_in_the_list(repo: Repo) -> None:
    ask = repo.ask()
    repo.trees.prepare(ask)
    (repo.root / "a.txt").write_text("the user's\n")
    repo.git("stash")
    assert repo.settle(ask) is None
    assert repo.show("stash@{0}", "a.txt") == "the user's"


def test_a_worktree_whose_folder_the_unit_deleted_leaves_its_commits_and_no_registration(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    made = repo.commit({"a.txt": "mine\n"}, at=folder)
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    kept = repo.settle(ask)
    assert kept is not None
    assert kept.commit == made == repo.refs()[ask.ref]
    assert repo.registered() == []


def test_a_worktree_that_the_unit_removed_through_git_leaves_its_commits(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    made = repo.commit({"a.txt": "mine\n"}, at=folder)
    repo.git("worktree", "remove", "--force", str(folder))
    kept = repo.settle(ask)
    assert kept is not None
    assert kept.commit == made == repo.refs()[ask.ref]
    assert repo.trees.settle(repo.ask("never-made")) is None


def test_an_unchanged_worktree_that_the_unit_deleted_is_forgotten(repo: Repo) -> None:
    ask = repo.ask()
    subprocess.run(["rm", "-rf", str(repo.trees.prepare(ask))], check=True)
    assert repo.settle(ask) is None
    assert repo.registered() == []


def test_a_deleted_git_file_does_not_hide_the_changes(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    (folder / ".git").unlink()
    (folder / "a.txt").write_text("mine\n")
    kept = repo.settle(ask)
    assert kept is not None
    assert repo.show(kept.commit, "a.txt") == "mine"
    assert repo.git("rev-parse", "--show-toplevel", at=folder) == str(folder)


def test_modes_links_and_any_name_are_kept_as_they_are(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    (folder / "a.txt").chmod(0o755)
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "line\nbreak").write_text("1")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe")).write_text("2")
    kept = repo.settle(ask)
    assert kept is not None
    listed = subprocess.run(
        ["git", "ls-tree", "-rz", kept.commit], cwd=repo.root, capture_output=True, check=True
    ).stdout.split(b"\0")
    assert {(line[:6], line.split(b"\t")[1]) for line in listed if line} >= {
        (b"100755", b"a.txt"),
        (b"120000", b"out"),
        (b"100644", b"line\nbreak"),
        (b"100644", b"\xff\xfe"),
    }
    assert repo.show(kept.commit, "out") == str(tmp_path / "secret")


def test_ten_thousand_untracked_files_are_all_kept(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask) / "many"
    folder.mkdir()
    for number in range(10_000):
        (folder / str(number)).touch()
    kept = repo.settle(ask)
    assert kept is not None
    assert len(repo.files(f"{kept.commit}:many")) == 10_000


def test_a_git_that_was_killed_in_the_worktree_hides_nothing(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    (repo.root / ".git/worktrees/1/index.lock").touch()
    (folder / "a.txt").write_text("mine\n")
    kept = repo.settle(ask)
    assert kept is not None
    assert repo.show(kept.commit, "a.txt") == "mine"


def test_a_broken_index_hides_nothing(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    (repo.root / ".git/worktrees/1/index").write_bytes(b"")
    (folder / "a.txt").write_text("mine\n")
    kept = repo.settle(ask)
    assert kept is not None
    assert repo.files(kept.commit) >= {"a.txt", "src/b.txt"}
    assert repo.show(kept.commit, "a.txt") == "mine"


def test_a_submodule_that_a_unit_added_is_kept_as_a_link_to_its_commit(
    repo: Repo, make_repo: Callable[..., Repo]
) -> None:
    other = make_repo("other")
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.root), "lib", at=folder)
    kept = repo.settle(ask)
    assert kept is not None
    assert f"160000 commit {other.head()}" in repo.git("ls-tree", kept.commit, "lib")
    assert (folder / "lib/a.txt").exists()
    again = repo.ask("again", commit=kept.commit)
    repo.trees.prepare(again)
    assert repo.settle(again) is None
    assert str(again.path) not in repo.registered()


def test_a_repository_without_a_commit_inside_stops_nothing(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    repo.git("init", "-q", "inner", at=folder)
    (folder / "inner/x").write_text("1")
    (folder / "a.txt").write_text("mine\n")
    kept = repo.settle(ask)
    assert kept is not None
    assert repo.show(kept.commit, "a.txt") == "mine"
    assert (folder / "inner/x").exists()


@pytest.mark.parametrize("name", ["inner", "build/inner"])
def test_a_worktree_in_the_worktree_keeps_both(repo: Repo, name: str) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    repo.git("worktree", "add", "-q", "--detach", name, at=folder)
    repo.commit({"a.txt": "inner\n"}, at=folder / name)
    assert repo.settle(ask) is not None
    assert (folder / name / "a.txt").read_text() == "inner\n"


def test_a_project_in_a_worktree_of_the_users_works_like_any(repo: Repo, make_repo: Callable[..., Repo]) -> None:
    repo.git("worktree", "add", "-q", "-b", "side", str(repo.root.parent / "side"))
    side = make_repo(root=repo.root.parent / "side")
    ask = side.ask()
    made = side.commit({"a.txt": "mine\n"}, at=side.trees.prepare(ask))
    kept = side.settle(ask)
    assert kept is not None
    assert repo.refs()[ask.ref] == made
