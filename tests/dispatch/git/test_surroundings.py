from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from tests.dispatch.git.conftest import Repo

from interlock.dispatch.git.base import IsolationError
from interlock.dispatch.git.trees import Trees


def test_what_lies_at_the_path_is_moved_aside_and_stays_registered(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    (folder / "a.txt").write_text("from before\n")
    folder = repo.trees.prepare(ask)
    aside = Path(f"{ask.path}.leftover-1")
    assert (aside / "a.txt").read_text() == "from before\n"
    assert (folder / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert repo.git("status", "--porcelain", at=aside) == " M a.txt"
    assert sorted(repo.registered()) == sorted([str(folder), str(aside)])


def test_a_leftover_is_kept_under_its_own_name(repo: Repo) -> None:
    ask = repo.ask()
    (repo.trees.prepare(ask) / "a.txt").write_text("from before\n")
    repo.trees.prepare(ask)
    ref = ask.ref + ".leftover-1"
    assert repo.git("show", f"{ref}:a.txt") == "from before"
    assert repo.refs()[f"{ref}.base"] == ask.commit
    assert repo.trees.left == []


def test_a_worktree_whose_every_change_is_kept_gives_way_without_a_leftover(repo: Repo) -> None:
    ask = repo.ask()
    (repo.trees.prepare(ask) / "a.txt").write_text("kept\n")
    kept = repo.settle(ask)
    assert kept is not None
    folder = repo.trees.prepare(ask)
    assert (folder / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert [path.name for path in folder.parent.iterdir()] == ["1"]
    assert repo.refs()[ask.ref] == kept.commit


def test_what_a_worktree_holds_is_gone_on_in_with_all_that_is_ignored(repo: Repo) -> None:
    repo.commit({".gitignore": ".interlock\n*.cache\n"})
    first = repo.ask("fix")
    folder = repo.trees.prepare(first)
    repo.git("checkout", "-qb", "own", at=folder)
    repo.commit({"a.txt": "committed\n"}, at=folder)
    (folder / "b.txt").write_text("not committed\n")
    (folder / "x.cache").write_text("ignored\n")
    kept = repo.settle(first)
    assert kept is not None
    again = msgspec.structs.replace(repo.ask("fix", commit=kept.commit), ref="refs/interlock/r1/fix/2")
    assert repo.trees.prepare(again) == folder
    assert (folder / "x.cache").read_text() == "ignored\n"
    assert repo.head(folder) == kept.commit
    assert repo.git("status", "--porcelain", at=folder) == ""
    assert repo.git("rev-parse", "--abbrev-ref", "HEAD", at=folder) == "HEAD"
    assert repo.git("rev-parse", "own") == repo.git("rev-parse", f"{kept.commit}^")
    assert repo.settle(again) is None
    assert repo.refs()[first.ref] == kept.commit


def test_a_worktree_in_the_middle_of_a_rebase_is_not_gone_on_in(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    (repo.root / ".git/worktrees/1/rebase-merge").mkdir()
    assert repo.trees.prepare(ask) == folder
    assert Path(f"{ask.path}.leftover-1", "a.txt").exists()


def test_a_file_at_the_path_is_moved_aside(repo: Repo) -> None:
    ask = repo.ask()
    Path(ask.path).parent.mkdir(parents=True)
    Path(ask.path).write_text("somebody's")
    repo.trees.prepare(ask)
    assert Path(f"{ask.path}.leftover-1").read_text() == "somebody's"


def test_a_registration_without_its_folder_gives_way_and_its_commits_stay(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    made = repo.commit({"a.txt": "mine\n"}, at=folder)
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    repo.trees.prepare(ask)
    assert repo.refs()[f"{ask.ref}.commit-1"] == made
    assert repo.registered() == [str(folder)]


def test_a_locked_worktree_is_waited_for_and_then_left(repo: Repo) -> None:
    ask = repo.ask()
    repo.trees.prepare(ask)
    repo.git("worktree", "lock", "--reason", "mine", ask.path)
    assert repo.settle(ask) is None
    assert "is locked: mine" in repo.trees.left[0]
    assert repo.registered() == [ask.path]
    with pytest.raises(IsolationError, match="is locked: mine") as caught:
        repo.trees.prepare(ask)
    assert caught.value.hint == f"when it is not needed any more: git worktree unlock {ask.path}"


def test_a_lock_that_goes_away_delays_the_removal_only(repo: Repo) -> None:
    trees = Trees(os.environ, lock_wait_s=30)
    ask = repo.ask()
    trees.prepare(ask)
    repo.git("worktree", "lock", ask.path)
    assert trees.settle(ask) is None
    repo.git("worktree", "unlock", ask.path)
    trees.close()
    assert (repo.registered(), trees.left) == ([], [])


def test_a_worktree_that_a_killed_git_left_half_made_gives_way(repo: Repo) -> None:
    ask = repo.ask()
    repo.trees.prepare(ask)
    (repo.root / ".git/worktrees/1/locked").write_text("initializing")
    folder = repo.trees.prepare(ask)
    assert (folder / "a.txt").exists()


def test_a_lock_on_a_ref_is_waited_for_and_named(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    (folder / "a.txt").write_text("mine\n")
    lock = repo.root / ".git" / f"{ask.ref}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    with pytest.raises(IsolationError, match="another git holds") as caught:
        repo.trees.settle(ask)
    assert caught.value.code == "git-locked"
    assert lock.exists()
    lock.unlink()
    assert repo.settle(ask) is not None


def test_hooks_neither_run_nor_print(repo: Repo) -> None:
    for name in ("post-checkout", "pre-commit", "reference-transaction", "post-index-change"):
        hook = repo.root / ".git/hooks" / name
        hook.write_text("#!/bin/sh\necho loud; touch ../hooked; exit 1\n")
        hook.chmod(0o755)
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    (folder / "a.txt").write_text("mine\n")
    assert repo.settle(ask) is not None
    assert not list(repo.root.parent.rglob("hooked"))


def test_an_outer_gits_variables_mislead_nobody(repo: Repo, tmp_path: Path) -> None:
    names = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")
    trees = Trees({**os.environ, **{name: str(tmp_path / "nowhere") for name in names}})
    ask = repo.ask()
    assert trees.prepare(ask) == Path(ask.path)
    assert trees.settle(ask) is None
    trees.close()


def test_pointers_of_large_files_stay_pointers(repo: Repo) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    base = repo.commit({"big.bin": pointer, ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"})
    for key, value in (("smudge", "false"), ("process", "false"), ("required", "true"), ("clean", "cat")):
        repo.git("config", f"filter.lfs.{key}", value)
    ask = repo.ask(commit=base)
    folder = repo.trees.prepare(ask)
    assert (folder / "big.bin").read_text() == pointer
    assert repo.settle(ask) is None


def test_a_shallow_clone_has_worktrees_too(repo: Repo, make_repo: Callable[..., Repo], tmp_path: Path) -> None:
    repo.commit({"a.txt": "second\n"})
    repo.git("clone", "-q", "--depth=1", f"file://{repo.root}", str(tmp_path / "shallow"))
    shallow = make_repo(root=tmp_path / "shallow")
    ask = shallow.ask()
    made = shallow.commit({"a.txt": "mine\n"}, at=shallow.trees.prepare(ask))
    kept = shallow.settle(ask)
    assert kept is not None
    assert kept.commit == made


def test_two_drivers_work_on_one_repository_at_once(repo: Repo) -> None:
    drivers = [Trees(os.environ) for _ in range(2)]
    gate = threading.Barrier(8)

    def live(number: int) -> bool:
        trees = drivers[number % 2]
        gate.wait()
        for turn in range(4):
            ask = repo.ask(f"u{number}-{turn}")
            folder = trees.prepare(ask)
            if turn == 3:
                (folder / "a.txt").write_text(f"{number}\n")
            if (trees.settle(ask) is None) != (turn < 3):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(live, range(8)))
    for trees in drivers:
        trees.close()
        assert trees.left == []
    assert sorted(repo.registered()) == sorted(str(repo.root / f".interlock/worktrees/r1/u{n}-3/1") for n in range(8))


def test_a_folder_that_may_not_be_entered_is_removed_all_the_same(repo: Repo) -> None:
    ask = repo.ask()
    folder = repo.trees.prepare(ask)
    (folder / "build/deep").mkdir(parents=True)
    (folder / "build/deep/x").touch()
    (folder / "build").chmod(0o500)
    (folder / "build/deep").chmod(0)
    assert repo.settle(ask) is None
    assert not folder.exists()


def test_finishing_and_closing_twice_is_harmless(repo: Repo) -> None:
    ask = repo.ask()
    repo.trees.prepare(ask)
    repo.trees.settle(ask)
    repo.trees.finish([ask.path])
    repo.trees.finish([ask.path, "/nowhere"])
    repo.trees.close()
    repo.trees.close()
    assert sys.exc_info() == (None, None, None)
    assert repo.registered() == []
