"""Makes a worktree for each attempt, and sees to it afterwards that nothing of it is lost and nothing of it lies about.

Guarantees: a worktree begins at its commit, detached, and is a toplevel of its own; what lies at its path already is
gone on in where it is just that, and moved aside where it holds anything that is not kept; what a unit changed is kept
under a ref before anything else happens; only a worktree that is as it was made is removed, on threads of this room; the
user's checkout, index, branches and stash stay as they are.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from interlock.dispatch.git import occupied
from interlock.dispatch.git import repository as repo
from interlock.dispatch.git.base import IsolationError, Kept, WorktreeAsk
from interlock.dispatch.git.command import LOCK_WAIT_S, Git
from interlock.dispatch.git.removal import remove, tidy
from interlock.dispatch.git.repository import Registration, Repository
from interlock.dispatch.git.snapshot import commit_tree, dirty, set_refs, tree_of
from interlock.dispatch.git.traces import keep_beside, keep_commits, keep_stashes, keep_unreachable, note, noted

_REMOVERS: Final = 4


class Trees:
    """The worktrees of one driver. Every method may be called from any thread."""

    def __init__(self, environ: Mapping[str, str] | None = None, *, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self._git = Git(environ, lock_wait_s=lock_wait_s)
        self._lock = threading.Lock()
        self._finding = threading.Lock()
        self._repositories: dict[str, Repository] = {}
        self._begins_with: dict[str, str] = {}
        self._begun: set[str] = set()
        self._removers: ThreadPoolExecutor | None = None
        self._removals: dict[str, Future[None]] = {}
        self.left: list[str] = []
        """What could not be removed, and why, one sentence each."""

    def prepare(self, ask: WorktreeAsk) -> Path:
        """Make the worktree; return the folder to work in. Raises IsolationError, and leaves nothing then."""
        self.finish([ask.path])
        repository = self.repository(ask.root)
        taken = os.path.lexists(ask.path) or repo.registered(repository.common, ask.path) is not None
        if not (taken and occupied.go_on_in(self._git, repository, ask)):
            if taken:
                self._clear(repository, ask)
            self._add(repository, ask)
        try:
            folder = self._checked(repository, ask)
        except BaseException:
            remove(self._git, repository, ask.path, forced=True)
            raise
        with self._lock:
            self._begun.add(ask.path)
        return folder

    def _clear(self, repository: Repository, ask: WorktreeAsk) -> None:
        aside = occupied.make_room(self._git, repository, ask)
        if aside is not None:
            try:
                self.settle(aside)
            except IsolationError as error:
                self.left.append(f"what was moved aside to {aside.path} is under no ref: {error}")

    def _add(self, repository: Repository, ask: WorktreeAsk) -> None:
        try:
            Path(ask.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise IsolationError(
                f"no folder can be made at {error.filename}: {error.strerror}", "free the place or some space"
            ) from error
        self._git(repository.top, "worktree", "add", "--detach", "--quiet", ask.path, ask.commit)

    def settle(self, ask: WorktreeAsk) -> Kept | None:
        """Keep what the attempt left, or have an unchanged worktree removed. The work must have ended. Idempotent.

        Raises IsolationError; folder and registration stay then as they are.
        """
        repository = self.repository(ask.root)
        found = repo.registered(repository.common, ask.path)
        if found is None:
            return self._vanished(repository, ask)
        head = self._head(repository, found, ask)
        there = os.path.lexists(ask.path)
        place = {"GIT_DIR": found.admin, "GIT_WORK_TREE": ask.path}
        cwd = ask.path if there else repository.common
        stashes = keep_stashes(self._git, repository.common, found.admin, ask.ref)
        commit = head
        if there and self._dirty(cwd, place):
            tree = tree_of(self._git, found.admin, cwd, place)
            commit = self._committed(repository, tree, head, ask)
        traces = stashes + keep_commits(self._git, repository.common, found.admin, (commit, ask.commit), ask.ref)
        changed = commit != ask.commit or traces or (there and repo.holds_others(repository, ask.path))
        if changed:
            if ask.path not in self._begun:
                commit = self._kept_already(repository, commit, ask)
            # its base too, so that what is kept can be read without a journal
            set_refs(self._git, repository.common, {f"{ask.ref}.base": ask.commit, ask.ref: commit})
        if not there:
            repo.forget(self._git, repository, found)
        elif changed:
            self._mend_link(repository, found)
        else:
            self._remove_later(repository, ask.path)
        self._begun.discard(ask.path)
        return Kept(path=ask.path, ref=ask.ref, commit=commit, base=ask.commit) if changed else None

    def finish(self, paths: Iterable[str] | None = None) -> None:
        """Wait until the queued removals of these worktrees (None: of all) are done. Idempotent; never raises."""
        with self._lock:
            wanted = list(self._removals) if paths is None else [path for path in paths if path in self._removals]
            waiting = {path: self._removals[path] for path in wanted}
        for path, removal in waiting.items():
            removal.result()
            with self._lock:
                if self._removals.get(path) is removal:
                    del self._removals[path]

    def close(self) -> None:
        """Wait for all removals and end the threads. Idempotent."""
        self.finish()
        with self._lock:
            removers, self._removers = self._removers, None
        if removers is not None:
            removers.shutdown()

    def _dirty(self, cwd: str, place: Mapping[str, str]) -> bool:
        try:
            return dirty(self._git, cwd, place)
        except IsolationError:
            # an index that cannot be read: the files themselves are looked at, or that fails with its own reason
            return True

    def repository(self, root: str) -> Repository:
        """Return the repository around `root`, looked up once. Raises IsolationError."""
        with self._finding:
            found = self._repositories.get(root)
            if found is None:
                found = self._repositories[root] = repo.find(self._git, root)
            return found

    def _checked(self, repository: Repository, ask: WorktreeAsk) -> Path:
        """Make sure that git works in the new worktree and nowhere else; return the folder to work in."""
        lines = self._git(ask.path, "rev-parse", "--show-toplevel", "--absolute-git-dir", "HEAD").text.split("\n")
        top = os.path.realpath(ask.path)
        if len(lines) != 3 or lines[0] != top or lines[2] != ask.commit:  # noqa: PLR2004 - the three that were asked
            raise IsolationError(
                f"git takes {lines[0]} for the checkout, not {ask.path}",
                "is core.worktree set in the repository's configuration? Remove it",
            )
        folder = Path(os.path.normpath(Path(top, repository.prefix, ask.cwd)))
        inside = os.path.realpath(folder)
        if inside != top and not repo.below(inside, top):
            raise IsolationError(f"the step's folder {ask.cwd} leads out of its worktree", "name a folder inside")
        if not folder.is_dir():
            named = os.path.relpath(folder, top)
            raise IsolationError(
                f"the folder {named} is not in commit {ask.commit[:12]}", "commit it, or take uncommitted work along"
            )
        note(repository.common, lines[1], ask.commit, self._git)
        return folder

    def _head(self, repository: Repository, found: Registration, ask: WorktreeAsk) -> str:
        """The commit at which the worktree stands; where it has none (a new branch without a commit), its base."""
        if Path(found.admin, "HEAD").read_bytes() == ask.commit.encode() + b"\n":
            return ask.commit
        place = {"GIT_DIR": found.admin, "GIT_WORK_TREE": ask.path}
        answer = self._git(
            repository.common, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", env=place, allowed=(0, 1, 128)
        )
        return ask.commit if answer.code else answer.text

    def _committed(self, repository: Repository, tree: str, head: str, ask: WorktreeAsk) -> str:
        before = self._begins_with.get(head)
        if before is None:
            before = self._git(repository.common, "rev-parse", f"{head}^{{tree}}").text
        if head == ask.commit:
            self._begins_with[head] = before
        if tree == before:
            return head
        return commit_tree(self._git, repository.common, tree, (head,), f"Left uncommitted by {ask.ref}")

    def _kept_already(self, repository: Repository, commit: str, ask: WorktreeAsk) -> str:
        """Return what is to be kept of a worktree that was settled before: a journal names what its ref holds."""
        before = repo.resolve(self._git, repository.common, ask.ref)
        if before is None or before == commit:
            return commit
        named = self._git(repository.common, "rev-parse", f"{before}^{{tree}}", f"{commit}^{{tree}}", f"{commit}^@")
        tree, now, *parents = named.text.split()
        if self._leads_to(repository, before, commit):
            return before
        if tree == now and all(self._leads_to(repository, before, parent) for parent in parents):
            return before
        if not self._leads_to(repository, commit, before):
            keep_beside(self._git, repository.common, before, ask.ref)
        return commit

    def _leads_to(self, repository: Repository, commit: str, earlier: str) -> bool:
        return not self._git(repository.common, "merge-base", "--is-ancestor", earlier, commit, allowed=(0, 1)).code

    def _mend_link(self, repository: Repository, found: Registration) -> None:
        """Give a kept worktree its `.git` back when the unit removed it."""
        if not os.path.lexists(Path(found.path, ".git")):
            Path(found.path, ".git").write_bytes(b"gitdir: " + os.fsencode(found.admin) + b"\n")
            self._git(repository.common, "worktree", "repair", found.path)

    def _vanished(self, repository: Repository, ask: WorktreeAsk) -> Kept | None:
        """Find what a unit left that removed its own worktree; the log that told its commits went with it."""
        kept = repo.resolve(self._git, repository.common, ask.ref)
        if kept is None and ask.path in self._begun:
            self._begun.discard(ask.path)
            answer = self._git(repository.common, "fsck", "--unreachable", "--connectivity-only", "--no-progress")
            lost = [line.split()[2] for line in answer.text.splitlines() if line.startswith("unreachable commit ")]
            children = [
                one
                for one in lost
                if not self._git(repository.common, "merge-base", "--is-ancestor", ask.commit, one, allowed=(0, 1)).code
            ]
            if children and keep_unreachable(self._git, repository.common, children, (ask.commit,), ask.ref):
                kept = repo.resolve(self._git, repository.common, f"{ask.ref}.commit-1") or ask.commit
                set_refs(self._git, repository.common, {f"{ask.ref}.base": ask.commit, ask.ref: kept})
        return Kept(path=ask.path, ref=ask.ref, commit=kept, base=ask.commit) if kept else None

    def _remove_later(self, repository: Repository, path: str) -> None:
        with self._lock:
            if self._removers is None:
                self._removers = ThreadPoolExecutor(_REMOVERS, thread_name_prefix="worktree")
            self._removals[path] = self._removers.submit(self._remove, repository, path)

    def _remove(self, repository: Repository, path: str) -> None:
        try:
            remove(self._git, repository, path)
        except (IsolationError, OSError) as error:
            self.left.append(f"the worktree {path} could not be removed: {error}")
        with contextlib.suppress(OSError):
            tidy(path)


def base_of(registration: Registration) -> str | None:
    """Return where a worktree of ours began, None when it is none of ours."""
    known = noted(registration.admin)
    return known[0] if known else None
