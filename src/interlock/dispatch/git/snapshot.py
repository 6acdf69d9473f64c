"""What is not committed, as a commit: everything tracked or unignored, through an index of its own.

Guarantees: the checkout, its index (also one with a stale lock, or one in the middle of a merge), HEAD and the stash
stay as they are; links are kept as links, names and modes as they are, other repositories inside as links to commits.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from interlock.dispatch.git.base import IsolationError
from interlock.dispatch.git.command import IDENTITY, Git, dated
from interlock.dispatch.git.repository import find, head

_STATUS: Final = ("status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=none")


@contextlib.contextmanager
def index_beside(git: Git, git_dir: str, cwd: str, place: Mapping[str, str] | None = None) -> Iterator[dict[str, str]]:
    """Give an environment in which git uses a copy of the checkout's index."""
    # what a kill leaves of it goes with the worktree; a checkout's own folder is no place of ours
    room = git_dir if Path(git_dir, "commondir").is_file() else None
    with tempfile.TemporaryDirectory(prefix="interlock-index-", dir=room, ignore_cleanup_errors=True) as folder:
        copy = Path(folder, "index")
        env = {**(place or {}), "GIT_INDEX_FILE": str(copy)}
        try:
            # with its time: git tells by it which entries may have changed in the very moment they were recorded
            shutil.copy2(Path(git_dir, "index"), copy)
        except OSError:
            _index_anew(git, cwd, env)
        yield env


def _index_anew(git: Git, cwd: str, env: Mapping[str, str]) -> None:
    Path(env["GIT_INDEX_FILE"]).unlink(missing_ok=True)
    git(cwd, "read-tree", "HEAD", env=env)


def dirty(git: Git, cwd: str, place: Mapping[str, str] | None = None) -> bool:
    """Tell whether something tracked or unignored differs from HEAD."""
    return bool(git(cwd, *_STATUS, env=place).out)


def tree_of(git: Git, git_dir: str, cwd: str, place: Mapping[str, str] | None = None, *, whole: bool = False) -> str:
    """Write the checkout's files as a tree. What cannot be read is left out, or with `whole` an IsolationError."""
    with index_beside(git, git_dir, cwd, place) as env:
        return add_all(git, cwd, env, whole=whole)


def add_all(git: Git, cwd: str, env: Mapping[str, str], *, whole: bool) -> str:
    """Add everything to the index that `env` names; return the tree."""
    asked = ("add", "--all", "--ignore-errors")
    try:
        answer = git(cwd, *asked, env=env, allowed=(0, 1))
    except IsolationError:
        # the copy is of an index that git cannot read, or what is wrong is told again
        _index_anew(git, cwd, env)
        answer = git(cwd, *asked, env=env, allowed=(0, 1))
    # a repository inside that has no commit yet holds nothing that a commit could name
    missed = [line for line in answer.err.splitlines() if line.startswith("error:") and "have a commit" not in line]
    if answer.code and whole and missed:
        raise IsolationError(
            f"uncommitted work in {cwd} cannot be taken along: {missed[0]}", "mend or ignore that file"
        )
    return git(cwd, "write-tree", env=env).text


def commit_tree(
    git: Git, cwd: str, tree: str, parents: tuple[str, ...], message: str, env: Mapping[str, str] | None = None
) -> str:
    """Make a commit of interlock's own; return its name."""
    named = [part for parent in parents for part in ("-p", parent)]
    return git(cwd, "commit-tree", tree, *named, "-m", message, env={**IDENTITY, **(env or {})}).text


def set_ref(git: Git, cwd: str, ref: str, commit: str) -> None:
    """Point `ref` to `commit`, wherever it pointed."""
    git(cwd, "update-ref", "--no-deref", ref, commit)


def set_refs(git: Git, cwd: str, places: Mapping[str, str]) -> None:
    """Point refs to commits, wherever they pointed: all of them or none."""
    lines = [f"option no-deref\nupdate {ref} {commit}\n" for ref, commit in places.items()]
    git(cwd, "update-ref", "--stdin", given=os.fsencode("".join(["start\n", *lines, "commit\n"])))


def drop_ref(root: str | Path, ref: str, environ: Mapping[str, str] | None = None) -> None:
    """Remove a ref; one that is not there is as good."""
    Git(environ)(str(root), "update-ref", "--no-deref", "-d", ref)


def snapshot_commit(root: str | Path, ref: str | None, environ: Mapping[str, str] | None = None) -> str | None:
    """Return a commit of the uncommitted state on top of HEAD, kept under `ref` if any; None when there is nothing of it.

    The same state gives the same commit. Raises IsolationError, also when a file of it cannot be read.
    """
    git = Git(environ)
    repository = find(git, root)
    parent = head(git, root)
    if not dirty(git, repository.top):
        return None
    tree = tree_of(git, repository.git_dir, repository.top, whole=True)
    if tree == git(repository.top, "rev-parse", f"{parent}^{{tree}}").text:
        return None
    at = int(git(repository.top, "log", "-1", "--no-show-signature", "--format=%ct", parent).text)
    commit = commit_tree(git, repository.top, tree, (parent,), "Uncommitted state at the start of a run", dated(at))
    if ref is not None:
        set_ref(git, repository.top, ref, commit)
    return commit
