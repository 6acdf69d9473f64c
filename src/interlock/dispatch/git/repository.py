"""What a repository looks like from a project's root: where it is, where it stands, who has worktrees in it.

Only reads, but for `hold`, refs below `refs/interlock/`, and registrations that it is told to remove.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from interlock.dispatch.git.base import IsolationError
from interlock.dispatch.git.command import Git, refusal


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """The repository around a folder."""

    top: str
    """The checkout's toplevel."""
    prefix: str
    """The folder's place below it, '' at the top."""
    common: str
    """The folder that all worktrees share."""
    git_dir: str
    """The checkout's own."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A worktree that the repository knows of."""

    admin: str
    """Its folder below `<common>/worktrees`."""
    path: str
    locked: str | None = None
    """Why, when it is."""


def find(git: Git, root: str | Path) -> Repository:
    """Return the repository with a checkout around `root`. Raises IsolationError."""
    asked = ("--is-bare-repository", "--is-inside-work-tree", "--absolute-git-dir", "--git-common-dir")
    # where there is no checkout, git answers all but the last and fails
    answer = git(root, "rev-parse", *asked, "--show-toplevel", allowed=(0, 128))
    lines = answer.text.split("\n")
    if answer.code and lines[1:2] != ["false"]:
        raise refusal(str(root), ("rev-parse",), answer.err)
    if lines[1] != "true":
        raise IsolationError(
            f"{root} is in a git repository without a checkout",
            "work in a checkout of it: git worktree add FOLDER",
            "bare-repository",
        )
    git_dir, common = lines[2], os.path.realpath(Path(root, lines[3]))
    top = lines[4]
    return Repository(top=top, prefix=os.path.relpath(os.path.realpath(root), top), common=common, git_dir=git_dir)


def head(git: Git, root: str | Path) -> str:
    """Return HEAD's commit. Raises IsolationError."""
    answer = git(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", allowed=(0, 1))
    if answer.code:
        raise IsolationError(
            f"the repository at {root} has no commit yet", "make one: git add -A && git commit", "no-commits"
        )
    return answer.text


def resolve(git: Git, root: str | Path, name: str) -> str | None:
    """Return the commit that `name` means, None when it means none."""
    answer = git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", allowed=(0, 1, 128))
    return None if answer.code else answer.text


def missing(root: str, commits: Collection[str]) -> frozenset[str]:
    """Return those of the commits that are not there; where there is no repository any more, all of them."""
    asked = os.fsencode("".join(f"{commit}^{{commit}}\n" for commit in commits))
    try:
        said = Git()(root, "cat-file", "--batch-check=%(objectname)", given=asked).text.splitlines()
    except IsolationError:
        return frozenset(commits)
    return frozenset(commit for commit, line in zip(commits, said, strict=True) if " " in line)


def registrations(common: str) -> Iterator[Registration]:
    """Yield the worktrees beside the main one, also those whose folder is gone."""
    with contextlib.suppress(FileNotFoundError):
        for entry in sorted(Path(common, "worktrees").iterdir()):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                pointer = os.fsdecode((entry / "gitdir").read_bytes()).rstrip("\n")
                yield Registration(admin=str(entry), path=str(Path(pointer).parent), locked=_lock(entry))


def _lock(admin: Path) -> str | None:
    try:
        return (admin / "locked").read_text("utf-8", "replace").strip()
    except FileNotFoundError:
        return None


def registered(common: str, path: str) -> Registration | None:
    """Return the registration of the worktree at `path`."""
    pointer = Path(path, ".git")
    with contextlib.suppress(OSError):
        said = os.fsdecode(pointer.read_bytes())
        admin = Path(said.removeprefix("gitdir: ").rstrip("\n"))
        there = os.fsdecode((admin / "gitdir").read_bytes()).rstrip("\n")
        if admin.parent == Path(common, "worktrees") and there == str(pointer):
            return Registration(admin=str(admin), path=path, locked=_lock(admin))
    return next((one for one in registrations(common) if one.path == path), None)


def below(path: str, folder: str) -> bool:
    """Tell whether `path` lies in `folder`, and is not the folder itself."""
    return path.startswith(folder.rstrip("/") + "/")


def holds_others(repository: Repository, path: str) -> bool:
    """Tell whether somebody made a worktree below `path`, also where git ignores it."""
    return any(below(one.path, path) for one in registrations(repository.common))


def forget(git: Git, repository: Repository, registration: Registration) -> None:
    """Remove a registration whose folder is gone or elsewhere by now. Raises IsolationError."""
    git(repository.common, "worktree", "remove", "--force", registration.path)


@contextlib.contextmanager
def hold(common: str) -> Iterator[None]:
    """Keep other drivers' hands off what all worktrees of a repository share; git itself does not notice."""
    descriptor = os.open(common, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
