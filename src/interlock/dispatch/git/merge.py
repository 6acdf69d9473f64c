"""Brings the work of many units together on one branch, in item order, with a check after each.

Guarantees: merges are made of commits alone, with fixed names and dates, so doing it again after a crash at any point
gives the same commits; a part that does not fit, or that the check finds red, changes nothing and is told, both sides
kept under refs; the branch appears or moves at the very end, and only when it is interlock's and nobody works on it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from interlock.dispatch.git import repository as repo
from interlock.dispatch.git.base import (
    BRANCHES,
    CheckResult,
    CheckUnavailableError,
    Conflict,
    IsolationError,
    Merged,
    MergedItem,
    Part,
    Rejected,
)
from interlock.dispatch.git.command import Git, dated
from interlock.dispatch.git.removal import move_aside, remove, tidy
from interlock.dispatch.git.repository import Repository
from interlock.dispatch.git.snapshot import commit_tree, set_ref, set_refs
from interlock.dispatch.git.traces import note

Check = Callable[[Path, int], CheckResult]
"""Gets the folder to work in (the project's place in the merge's worktree) and the index of the part merged last."""

_OWN_ONLY: Final = "it is not interlock's, or was moved by somebody else"


def merge_all(
    place: str | Path | Repository,
    path: str,
    base: str,
    branch: str,
    parts: Sequence[Part],
    check: Check | None,
    at: int,
    *,
    environ: Mapping[str, str] | None = None,
) -> Merged:
    """Merge `parts` onto `base` in a worktree at `path`; make or move `branch` to where that led.

    `place` is the repository, or a folder in it. `at` is the date of the merges, in seconds since the epoch. Raises IsolationError when the branch is not ours to
    move, CheckUnavailableError when a check could not be judged; the branch is as before then.
    """
    git = Git(environ)
    repository = place if isinstance(place, Repository) else repo.find(git, place)
    merge = _Merge(git, repository, path, base, branch, at)
    merge.refuse_foreign_branch()
    found = merge.look_up(sorted(parts, key=lambda one: one.index))
    if check is not None:
        merge.make_worktree()
    for part, commit in found:
        merge.add(part, commit, check)
    return merge.done()


class _Merge:
    """One merge under way: `self._tip` is what was merged and found good so far."""

    def __init__(self, git: Git, repository: Repository, path: str, base: str, branch: str, at: int) -> None:
        self._git = git
        self._repository = repository
        self._common = self._repository.common
        self._path = path
        self._base = self._tip = base
        self._tree: str | None = None
        self._admin = ""
        self._clean = True
        self._branch = branch
        self._dates = dated(at)
        self._merged: list[MergedItem] = []
        self._conflicts: list[Conflict] = []
        self._rejected: list[Rejected] = []

    def refuse_foreign_branch(self) -> str | None:
        """Return where the branch is, None when there is none. Raises IsolationError when it is not ours to move."""
        git, name = self._git, f"refs/heads/{self._branch}"
        at = repo.resolve(git, self._common, name)
        if at is None:
            if git(self._common, "check-ref-format", name, allowed=(0, 1)).code:
                raise IsolationError(f"'{self._branch}' is no name for a branch", "give another one")
            return None
        if at != repo.resolve(git, self._common, f"{BRANCHES}{self._branch}"):
            raise IsolationError(
                f"the branch {self._branch} is there already: {_OWN_ONLY}",
                f"rename or delete it: git branch -m {self._branch} NEW",
                "branch-taken",
            )
        listed = git(self._common, "worktree", "list", "--porcelain", "-z").names()
        lines = [line for line in listed if line.startswith(("worktree ", "branch "))]
        for line, following in itertools.pairwise(lines):
            if following == f"branch {name}":
                raise IsolationError(
                    f"the branch {self._branch} is checked out at {line.removeprefix('worktree ')}",
                    "switch to another branch there",
                    "branch-in-use",
                )
        return at

    def make_worktree(self) -> None:
        """Make the worktree of the checks, or take the one that an earlier, interrupted merge left."""
        self._remove_earlier()
        found = repo.registered(self._common, self._path)
        if found is None or not Path(self._path, ".git").is_file() or found.locked is not None:
            move_aside(self._git, self._repository, self._path, f"refs/interlock/{self._branch}")
            Path(self._path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._git(self._repository.top, "worktree", "add", "--detach", "--quiet", self._path, self._base)
            found = repo.registered(self._common, self._path)
            if found is None:
                raise IsolationError(f"no worktree could be made at {self._path}", "run it again")
            note(self._common, found.admin, self._base, self._git)
        else:
            self._clean = False
        self._admin = found.admin

    def _remove_earlier(self) -> None:
        """Remove what earlier attempts of this merge left: all of it can be made again."""
        own = Path(self._path)
        for one in repo.registrations(self._common):
            path = Path(one.path)
            earlier = path.parent == own.parent and path.name.isdigit() and own.name.isdigit()
            if earlier and int(path.name) < int(own.name) and one.locked is None:
                remove(self._git, self._repository, one.path, forced=True)

    def look_up(self, parts: Sequence[Part]) -> list[tuple[Part, str]]:
        """Return the parts with their commits, and have them kept. Raises IsolationError when one is gone."""
        if not parts:
            return []
        asked = os.fsencode("".join(f"{part.commit}^{{commit}}\n" for part in parts))
        said = self._git(self._common, "cat-file", "--batch-check=%(objectname)", given=asked).text.splitlines()
        for part, line in zip(parts, said, strict=True):
            if " " in line:
                raise IsolationError(
                    f"the commit {part.commit[:12]} of item {part.index} is gone",
                    f"see what is kept: interlock worktrees list; it was under {part.ref}",
                )
        kept = {part.ref: commit for part, commit in zip(parts, said, strict=True)}
        bases = {f"{part.ref}.base": part.base or self._base for part in parts if part.base is not None}
        set_refs(self._git, self._common, bases | kept)
        return list(zip(parts, said, strict=True))

    def add(self, part: Part, theirs: str, check: Check | None) -> None:
        """Merge one part, or say why not."""
        item: Any = msgspec.json.decode(part.item_json)
        tree, paths = self._three_way(theirs)
        if tree is None:
            set_ref(self._git, self._common, f"{part.ref}.ours", self._tip)
            self._conflicts.append(
                Conflict(index=part.index, item=item, ref=part.ref, paths=paths, ours=self._tip, theirs=theirs)
            )
            return
        said = f"Merge item {part.index} from {part.ref}"
        commit = commit_tree(self._git, self._common, tree, (self._tip, theirs), said, self._dates)
        found = self._checked(commit, part.index, check) if check else CheckResult(passed=True)
        if found.passed:
            self._tip, self._tree = commit, tree
            self._merged.append(MergedItem(index=part.index, item=item, ref=part.ref, commit=commit))
        else:
            self._rejected.append(Rejected(index=part.index, item=item, ref=part.ref, feedback=found.feedback))

    def done(self) -> Merged:
        """Move the branch, remove the worktree, tell what came of it."""
        at = self.refuse_foreign_branch()
        if at != self._tip:
            zero = "0" * len(self._tip)
            change = f"update refs/heads/{self._branch} {self._tip} {at or zero}\n"
            marked = f"update {BRANCHES}{self._branch} {self._tip}\n"
            self._git(self._common, "update-ref", "--stdin", given=os.fsencode(f"start\n{marked}{change}commit\n"))
        remove(self._git, self._repository, self._path, forced=True)
        tidy(self._path)
        return Merged(
            branch=self._branch,
            tree=self._tree or self._git(self._common, "rev-parse", f"{self._tip}^{{tree}}").text,
            commit=self._tip,
            merged=tuple(self._merged),
            conflicts=tuple(self._conflicts),
            rejected=tuple(self._rejected),
        )

    def _three_way(self, theirs: str) -> tuple[str | None, tuple[str, ...]]:
        """Return the merged tree, or None and the paths that conflict."""
        # the unit may have left its base behind for a history of its own; then it is compared with the base all the same
        asked = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", "--allow-unrelated-histories")
        answer = self._git(self._common, *asked, self._tip, theirs, allowed=(0, 1))
        tree, *paths = answer.names()
        if not answer.code:
            return tree, ()
        return None, tuple(sorted({os.fsencode(name).decode("utf-8", "backslashreplace") for name in paths}))

    def _checked(self, commit: str, index: int, check: Check) -> CheckResult:
        self._check_out(commit)
        folder = Path(os.path.normpath(Path(self._path, self._repository.prefix)))
        self._clean = False
        found = check(folder, index)
        if found.unavailable:
            raise CheckUnavailableError(index, found.feedback)
        return found

    def _check_out(self, commit: str) -> None:
        """Bring the worktree to `commit`. What checks left there is removed, but what is ignored stays: caches."""
        # of a git that died with a check or a driver: nobody else works here
        Path(self._admin, "index.lock").unlink(missing_ok=True)
        self._git(self._path, "checkout", "--detach", "--force", "--quiet", commit)
        if not self._clean:
            self._git(self._path, "clean", "-ffdq")
