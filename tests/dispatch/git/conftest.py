"""Real repositories, made fast, with a user's checkout that must stay as it is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interlock.dispatch.git.base import Kept, WorktreeAsk
from interlock.dispatch.git.trees import Trees


class Repo:
    """A repository, its project and the worktrees of one driver."""

    def __init__(self, root: Path, trees: Trees) -> None:
        self.root = root
        self.trees = trees
        self._asked = 0

    def git(self, *arguments: str, at: Path | None = None, given: str | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=at or self.root, input=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.rstrip("\n")

    def commit(self, files: dict[str, str], said: str = "change", at: Path | None = None) -> str:
        for name, text in files.items():
            path = (at or self.root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "-A", at=at)
        self.git("commit", "-qm", said, at=at)
        return self.head(at)

    def head(self, at: Path | None = None) -> str:
        return self.git("rev-parse", "HEAD", at=at)

    def ask(self, unit: str | None = None, *, commit: str | None = None, cwd: str = ".") -> WorktreeAsk:
        self._asked += 1
        name = unit or f"fix-{self._asked}"
        return WorktreeAsk(
            root=str(self.root),
            commit=commit or self.head(),
            path=str(self.root / ".interlock/worktrees/r1" / name / "1"),
            ref=f"refs/interlock/r1/{name}/1",
            cwd=cwd,
        )

    def settle(self, ask: WorktreeAsk) -> Kept | None:
        kept = self.trees.settle(ask)
        self.trees.finish()
        return kept

    def registered(self) -> list[str]:
        lines = self.git("worktree", "list", "--porcelain").splitlines()
        return [line.removeprefix("worktree ") for line in lines if line.startswith("worktree ")][1:]

    def show(self, commit: str, name: str) -> str:
        return self.git("show", f"{commit}:{name}")

    def files(self, commit: str) -> set[str]:
        return set(self.git("ls-tree", "-r", "--name-only", commit).splitlines())

    def refs(self) -> dict[str, str]:
        lines = self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split(" ") for line in lines)

    def users(self) -> object:
        """Everything of the user's that nobody else may touch."""
        own = {name: commit for name, commit in self.refs().items() if not name.startswith("refs/interlock")}
        return (
            own,
            (self.root / ".git/HEAD").read_bytes(),
            (self.root / ".git/index").read_bytes(),
            self.git("stash", "list"),
            self.git("status", "--porcelain"),
            self.git("config", "--local", "--list"),
        )


def create(root: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", str(root)], check=True)
    (root / ".interlock").mkdir()
    (root / ".interlock/.gitignore").write_text("*\n")


@pytest.fixture
def make_repo(tmp_path: Path) -> Iterator[Callable[..., Repo]]:
    made: list[Trees] = []

    def make(name: str = "repo", *, root: Path | None = None) -> Repo:
        trees = Trees(os.environ, lock_wait_s=0.3)
        made.append(trees)
        repo = Repo(root or tmp_path / name, trees)
        if root is None:
            create(repo.root)
            repo.commit({"a.txt": "one\ntwo\nthree\n", "src/b.txt": "b\n", ".gitignore": "*.tmp\nbuild/\n"}, "first")
        return repo

    yield make
    for trees in made:
        trees.close()


@pytest.fixture
def repo(make_repo: Callable[..., Repo]) -> Repo:
    return make_repo()
