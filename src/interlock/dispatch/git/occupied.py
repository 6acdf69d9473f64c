"""What lies at the path of a new worktree already: gone on in, let go, or moved aside.

Guarantees: a worktree of ours that holds just what the new one begins with is gone on in, so what it ignores (caches,
what was installed) stays; one whose every change is kept already is removed; all else is moved aside as `.leftover-N`,
and where git can read it its content is kept under a ref of that name, so that it can be seen and applied like any other.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from interlock.dispatch.git import repository as repo
from interlock.dispatch.git.base import REFS, IsolationError, WorktreeAsk
from interlock.dispatch.git.command import Git
from interlock.dispatch.git.removal import move_aside, remove
from interlock.dispatch.git.repository import Registration, Repository
from interlock.dispatch.git.snapshot import tree_of
from interlock.dispatch.git.traces import keep_commits, noted

_UNDER_WAY: Final = ("rebase-merge", "rebase-apply", "BISECT_LOG", "sequencer", "locked")


def go_on_in(git: Git, repository: Repository, ask: WorktreeAsk) -> bool:
    """Tell whether the worktree at the path is as the new one should begin; it stands at its commit then, detached."""
    found, tree = _readable(git, repository, ask)
    if found is None or tree != git(repository.common, "rev-parse", f"{ask.commit}^{{tree}}").text:
        return False
    keep_commits(git, repository.common, found.admin, (ask.commit,), ask.ref)
    git(ask.path, "update-ref", "--no-deref", "HEAD", ask.commit)
    # named by its hash: a reset to HEAD is how a log shows that a stash was made
    git(ask.path, "reset", "--quiet", "--mixed", ask.commit)
    return True


def make_room(git: Git, repository: Repository, ask: WorktreeAsk) -> WorktreeAsk | None:
    """Free the path; return the worktree that was moved aside and is to be kept under its own ref, if there is one."""
    found, tree = _readable(git, repository, ask)
    if found is not None and tree in _kept(git, repository, ask) and not repo.holds_others(repository, ask.path):
        keep_commits(git, repository.common, found.admin, (), ask.ref, _head(git, repository, found))
        remove(git, repository, ask.path, forced=True)
        return None
    aside = move_aside(git, repository, ask.path, ask.ref)
    if aside is None or found is None:
        return None
    base = (noted(found.admin) or (ask.commit,))[0]
    return WorktreeAsk(root=ask.root, commit=base, path=aside, ref=REFS + "/".join(_named(aside)), cwd=ask.cwd)


def _readable(git: Git, repository: Repository, ask: WorktreeAsk) -> tuple[Registration | None, str]:
    """Return the worktree of ours at the path with its files as a tree, None when it is none that can be judged."""
    found = repo.registered(repository.common, ask.path)
    if found is None or noted(found.admin) is None or not Path(ask.path, ".git").is_file():
        return None, ""
    if any(os.path.lexists(Path(found.admin, name)) for name in _UNDER_WAY):
        return None, ""
    try:
        place = {"GIT_DIR": found.admin, "GIT_WORK_TREE": ask.path}
        return found, tree_of(git, found.admin, ask.path, place, whole=True)
    except (IsolationError, OSError):
        return None, ""


def _kept(git: Git, repository: Repository, ask: WorktreeAsk) -> set[str]:
    """Return the trees of what is kept of the run."""
    run = REFS + _named(ask.path)[0]
    return set(git(repository.common, "for-each-ref", "--format=%(tree)", run).text.splitlines())


def _named(path: str) -> tuple[str, ...]:
    """Return run, unit and attempt as a path names them; what goes on at another's path lies under that one's name."""
    return Path(path).parts[-3:]


def _head(git: Git, repository: Repository, found: Registration) -> str | None:
    return repo.resolve(git, repository.common, f"worktrees/{Path(found.admin).name}/HEAD")
