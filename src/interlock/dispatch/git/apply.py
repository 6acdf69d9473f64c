"""Brings what a unit left into the user's checkout: files only, no index, no commit, no branch.

Guarantees: all or nothing; a three-way merge from where the unit began; what does not fit, another repository inside, and
every file that the user has changed since and not committed refuse the whole; the index stays byte for byte as it is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from interlock.dispatch.git.base import IsolationError
from interlock.dispatch.git.command import IDENTITY, Git, dated
from interlock.dispatch.git.repository import Repository
from interlock.dispatch.git.snapshot import add_all, index_beside

_MOST_NAMED: Final = 5
_LINK: Final = "160000"


def apply(git: Git, repository: Repository, base: str, commit: str) -> tuple[str, ...]:
    """Change the checkout's files as `commit` changed `base`; return the paths. Raises IsolationError."""
    top = repository.top
    with index_beside(git, repository.git_dir, top) as env:
        now = add_all(git, top, env, whole=True)
        wanted = _merged(git, top, now, base, commit)
        touched = _differing(git, top, now, wanted)
        _refuse_links(git, top, now, wanted, commit)
        own = _differing(git, top, "HEAD", now) & _differing(git, top, base, now)
        # git itself takes ignored files for expendable
        tracked = set(git(top, "ls-tree", "-r", "-z", "--name-only", now).names())
        own |= _in_the_way(top, _differing(git, top, now, wanted, "--diff-filter=A"), tracked)
        if touched & own:
            raise IsolationError(
                f"uncommitted changes of yours would be overwritten: {_named(touched & own)}",
                "commit them or move them away, then apply again",
                "would-overwrite",
            )
        try:
            git(top, "read-tree", "-m", "-u", now, wanted, env=env)
        except IsolationError as error:
            raise IsolationError(
                f"nothing was applied: {error.message}", "move those files away", error.code
            ) from error
    return tuple(sorted(touched))


def _refuse_links(git: Git, top: str, now: str, wanted: str, commit: str) -> None:
    """Raise when another repository inside was added or moved on: files alone can't bring that over."""
    raw = git(top, "diff-tree", "-r", "-z", "--raw", "--no-renames", now, wanted).names()
    links = {path for modes, path in zip(raw[::2], raw[1::2], strict=True) if _LINK in modes.split(" ")[:2]}
    if links:
        raise IsolationError(
            f"another repository inside was changed, which is no matter of files: {_named(links)}",
            f"merge it by hand: git merge {commit[:12]}",
            "repository-inside",
        )


def _merged(git: Git, top: str, now: str, base: str, commit: str) -> str:
    """Return the tree of a three-way merge whose base is `base`, whatever the histories say."""
    sides = []
    for tree in (now, f"{commit}^{{tree}}"):
        name = git(top, "rev-parse", tree).text
        sides.append(git(top, "commit-tree", name, "-p", base, "-m", "side", env={**IDENTITY, **dated(0)}).text)
    answer = git(top, "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", *sides, allowed=(0, 1))
    tree, *paths = answer.names()
    if answer.code:
        raise IsolationError(
            f"it does not fit to your checkout: conflicts in {_named(set(paths))}",
            f"merge it by hand: git merge {commit[:12]}",
            "conflict",
        )
    return tree


def _differing(git: Git, top: str, one: str, other: str, *only: str) -> set[str]:
    asked = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", *only)
    return set(git(top, *asked, f"{one}^{{tree}}", other).names())


def _in_the_way(top: str, new: set[str], tracked: set[str]) -> set[str]:
    """Return the new paths at which, below which or above which there is a file that is not `tracked`: an ignored one."""
    return {path for path in new if _untracked_at(top, path, tracked)}


def _untracked_at(top: str, path: str, tracked: set[str]) -> bool:
    parts = path.split("/")
    for place in ("/".join(parts[:count]) for count in range(1, len(parts) + 1)):
        there = Path(top, place)
        if os.path.lexists(there) and (there.is_symlink() or not there.is_dir()):
            return place not in tracked
    files = (
        os.path.relpath(Path(folder, name), top) for folder, _, names in os.walk(Path(top, path)) for name in names
    )
    return any(name not in tracked for name in files)


def _named(paths: set[str]) -> str:
    shown = [os.fsencode(path).decode("utf-8", "backslashreplace") for path in sorted(paths)[:_MOST_NAMED]]
    more = len(paths) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
