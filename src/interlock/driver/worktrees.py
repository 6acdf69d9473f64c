"""What runs left in worktrees: found, shown, applied, dropped, and the unchanged of them collected.

Guarantees: it is read from refs and folders, so it works without a journal; only what lies below the project's folder of
worktrees or under `refs/interlock/` is ever removed, and only what was named, or surely holds nothing.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import msgspec

from interlock.decide.worktrees import safe_name
from interlock.dispatch.git import apply as applying
from interlock.dispatch.git import repository as repo
from interlock.dispatch.git.base import REFS, IsolationError, WorktreeAsk
from interlock.dispatch.git.command import Git
from interlock.dispatch.git.removal import remove, tidy
from interlock.dispatch.git.trees import Trees, base_of
from interlock.errors import UsageError

_PARTS: Final = 3
_REF: Final = re.compile(
    r"(?P<run>[^/]+)/(?P<unit>[^/]+)/(?P<attempt>[^/.]+(\.leftover-[0-9]+)?)(\.(base|ours|stash-[0-9]+|commit-[0-9]+))?"
)


class KeptTree(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt's worktree, or what is kept of it. `commit` is None for one that has not been settled."""

    run: str
    unit: str
    attempt: str
    """Its number; what was moved aside has a suffix `.leftover-N`."""
    ref: str
    commit: str | None
    base: str | None
    files: int
    path: str
    registered: bool
    beside: tuple[str, ...] = ()
    """Refs of what is kept besides: stashes, commits that were moved away from, the other side of a conflict."""

    @property
    def name(self) -> str:
        """How it is named on the command line."""
        return f"{self.run} {self.unit}/{self.attempt}"


class Worktrees:
    """The worktrees of one project."""

    def __init__(self, root: Path, state_dir: Path, environ: Mapping[str, str] | None = None) -> None:
        self._root = root
        self._folder = os.path.realpath(state_dir / "worktrees")
        self._environ = environ
        self._git = Git(environ)
        self._repository = repo.find(self._git, root)

    def all(self) -> list[KeptTree]:
        """Return everything there is, by run, unit and attempt."""
        refs = self._refs()
        found = {key: one for one in repo.registrations(self._repository.common) if (key := self._key(one.path))}
        owned: dict[tuple[str, str, str], list[str]] = {}
        for ref in refs:
            if key := _owner(ref):
                owned.setdefault(key, []).append(ref)
        keys = sorted(owned.keys() | found.keys() | self._folders())
        return [self._tree(key, refs, found.get(key), owned.get(key, [])) for key in keys]

    def select(self, run: str | None, unit: str | None) -> list[KeptTree]:
        """Return those of a run and a unit; each by a beginning, the unit also as `UNIT/ATTEMPT`. Raises UsageError.

        A unit goes by its id or by the name of its folder, in which signs stand that a path may have.
        """
        trees = self.all()
        found = [tree for tree in trees if run is None or tree.run.startswith(run)]
        if unit is not None:
            name = safe_name(unit)
            exact = [tree for tree in found if name in (tree.unit, f"{tree.unit}/{tree.attempt}")]
            found = exact or [tree for tree in found if f"{tree.unit}/{tree.attempt}".startswith(name)]
        if not found and run is not None:
            what = f"{run} {unit}" if unit else run
            raise UsageError("nothing-kept", f"no worktree of {what} is kept", "see them: interlock worktrees list")
        return found

    def newest(self, run: str | None, unit: str | None) -> list[KeptTree]:
        """Return what `select` does, but of one unit that is named by its id only what its last attempt left."""
        found = self.select(run, unit)
        if unit is None or ":" not in unit or len({(tree.run, tree.unit) for tree in found}) != 1:
            return found
        settled = [tree for tree in found if tree.commit is not None and tree.attempt.isdigit()]
        return [max(settled, key=lambda tree: int(tree.attempt))] if settled else found

    def diff(self, tree: KeptTree) -> bytes:
        """Return what the attempt changed since it began, as a patch."""
        base, commit = self._settled(tree)
        return self._git(
            self._repository.top, "diff", "--no-color", "--no-ext-diff", "--no-textconv", "--binary", base, commit
        ).out

    def apply(self, tree: KeptTree) -> tuple[str, ...]:
        """Bring it into the checkout's files, and nothing else; return the paths. Raises IsolationError."""
        return applying.apply(self._git, self._repository, *self._settled(tree))

    def refuse_drop(self, trees: Collection[KeptTree]) -> None:
        """Raise IsolationError when one of them can't be dropped."""
        known = list(repo.registrations(self._repository.common))
        for tree in trees:
            for one in known:
                if repo.below(one.path, tree.path):
                    raise IsolationError(
                        f"there is a worktree of somebody's in it: {one.path}",
                        f"remove it first: git worktree remove {shlex.quote(one.path)}",
                    )
                if one.path == tree.path and one.locked:
                    raise IsolationError(
                        f"the worktree {one.path} is locked: {one.locked}",
                        f"when it is not needed any more: git worktree unlock {shlex.quote(one.path)}",
                        "worktree-locked",
                    )

    def drop(self, tree: KeptTree) -> None:
        """Remove folder, registration and refs, in this order: what a crash leaves is still listed. Raises."""
        self.refuse_drop([tree])
        remove(self._git, self._repository, tree.path, forced=True)
        if self._key(tree.path):
            _delete(tree.path)
        tidy(tree.path)
        for ref in (*tree.beside, f"{tree.ref}.base", tree.ref):
            self._git(self._repository.common, "update-ref", "--no-deref", "-d", ref)

    def collect(self, alone: Callable[[str], AbstractContextManager[bool]], *, dry_run: bool) -> tuple[str, ...]:
        """Remove the unchanged worktrees of runs that `alone` keeps drivers off, and registrations without folders.

        What such a worktree holds is put under its ref first; return the paths that went, or would.
        """
        trees = Trees(self._environ)
        gone = []
        try:
            for one in list(repo.registrations(self._repository.common)):
                key, base = self._key(one.path), base_of(one)
                if key is None or base is None or one.locked is not None:
                    continue
                with alone(key[0]) as free:
                    gone += [one.path] if free and self._collect(trees, one, key, base, dry_run=dry_run) else []
        finally:
            trees.close()
        return tuple(path for path in gone if dry_run or not os.path.lexists(path))

    def _collect(
        self, trees: Trees, one: repo.Registration, key: tuple[str, str, str], base: str, *, dry_run: bool
    ) -> bool:
        there = os.path.lexists(one.path)
        if dry_run:
            return not there or self._unchanged(one.path, base)
        ref = REFS + "/".join(key)
        kept = trees.settle(WorktreeAsk(root=str(self._root), commit=base, path=one.path, ref=ref))
        return kept is None or not there

    def forget_bases(self, gone: Callable[[str], bool]) -> None:
        """Let go of the uncommitted state that was kept for runs that are gone."""
        for ref in self._refs():
            run, _, rest = ref.removeprefix(REFS).partition("/")
            if rest == "base" and gone(run):
                self._git(self._repository.common, "update-ref", "--no-deref", "-d", ref)

    def _unchanged(self, path: str, base: str) -> bool:
        status = self._git(path, "status", "--porcelain", "-z", "--untracked-files=normal").out
        return not status and self._git(path, "rev-parse", "HEAD").text == base

    def _tree(
        self,
        key: tuple[str, str, str],
        refs: Mapping[str, str],
        found: repo.Registration | None,
        owned: Collection[str],
    ) -> KeptTree:
        ref = REFS + "/".join(key)
        commit = refs.get(ref)
        base = refs.get(f"{ref}.base") or (base_of(found) if found else None)
        path = str(Path(self._folder, *key))
        return KeptTree(
            run=key[0],
            unit=key[1],
            attempt=key[2],
            ref=ref,
            commit=commit,
            base=base,
            files=self._files(base, commit) if base and commit else 0,
            path=path,
            registered=found is not None,
            beside=tuple(one for one in owned if one not in (ref, f"{ref}.base")),
        )

    def _files(self, base: str, commit: str) -> int:
        asked = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", base, commit)
        return len(self._git(self._repository.common, *asked).names())

    def _refs(self) -> dict[str, str]:
        lines = self._git(
            self._repository.common, "for-each-ref", "--format=%(refname) %(objectname)", REFS
        ).text.splitlines()
        return dict(_pair(line) for line in lines)

    def _folders(self) -> set[tuple[str, str, str]]:
        """Return what lies in the folder of worktrees, whether or not git knows of it."""
        found: set[tuple[str, str, str]] = set()
        for run in _inside(self._folder):
            for unit in _inside(f"{self._folder}/{run}"):
                found.update((run, unit, attempt) for attempt in _inside(f"{self._folder}/{run}/{unit}"))
        return found

    def _key(self, path: str) -> tuple[str, str, str] | None:
        """Return run, unit and attempt of a worktree's folder, None for one that is not ours."""
        if not repo.below(path, self._folder):
            return None
        parts = Path(path).relative_to(self._folder).parts
        return (parts[0], parts[1], parts[2]) if len(parts) == _PARTS else None

    def _settled(self, tree: KeptTree) -> tuple[str, str]:
        if tree.base is None or tree.commit is None:
            raise IsolationError(
                f"what {tree.name} holds is not a commit yet", f"look into its folder: {tree.path}", "not-settled"
            )
        return tree.base, tree.commit


def _delete(path: str) -> None:
    """Remove a folder, a file or a link, if there is one."""
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - a path of any bytes
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)  # noqa: PTH108 - as above


def _inside(folder: str) -> list[str]:
    """Return the names in a folder, none for what is not one."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names of any bytes are compared as they are
    except (FileNotFoundError, NotADirectoryError):
        return []


def _pair(line: str) -> tuple[str, str]:
    name, _, commit = line.rpartition(" ")
    return name, commit


def _owner(ref: str) -> tuple[str, str, str] | None:
    """Return run, unit and attempt that a ref belongs to."""
    found = _REF.fullmatch(ref.removeprefix(REFS))
    return (found["run"], found["unit"], found["attempt"]) if found else None
