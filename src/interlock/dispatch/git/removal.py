"""Takes worktrees away: aside when somebody may still want what is in them, for good when nobody can.

Guarantees: nothing stays registered at a path that was cleared; a lock that somebody put on a worktree is waited for
and then respected; without `forced`, git itself looks once more whether the worktree is as it was made.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import time
from pathlib import Path
from typing import Final

from interlock.dispatch.git.base import IsolationError
from interlock.dispatch.git.command import Git
from interlock.dispatch.git.repository import Registration, Repository, forget, registered
from interlock.dispatch.git.traces import keep_commits

_BEING_MADE: Final = "initializing"
"""What git's own lock says while it makes a worktree."""
_PAUSE_S: Final = 0.05


def remove(git: Git, repository: Repository, path: str, *, forced: bool = False) -> None:
    """Remove folder and registration. Raises IsolationError when it was locked or, without `forced`, changed."""
    found = registered(repository.common, path)
    if found is None:
        return
    if found.locked is not None:
        found = _unlocked(git, found)
    force = ["--force"] if forced else []
    try:
        git(repository.common, "worktree", "remove", *force, path)
    except IsolationError as error:
        if "containing submodules" in error.message and not forced:
            # git looks no further there; whoever asked has looked
            remove(git, repository, path, forced=True)
        elif "failed to delete" in error.message:
            _open_up(path)
            shutil.rmtree(path)
            if registered(repository.common, path) is not None:
                forget(git, repository, found)
        else:
            raise


def move_aside(git: Git, repository: Repository, path: str, ref: str) -> str | None:
    """Free `path`; return where what was there is now, registered as before, None when there was nothing."""
    found = registered(repository.common, path)
    if not os.path.lexists(path):
        if found is not None:
            head = git(repository.common, "rev-parse", "HEAD", env={"GIT_DIR": found.admin}, allowed=(0, 128)).text
            if head:
                keep_commits(git, repository.common, found.admin, (), ref, head)
            forget(git, repository, found)
        return None
    if found is not None and found.locked is not None:
        found = _unlocked(git, found)
    aside = _free_name(path)
    Path(path).rename(aside)
    if found is not None:
        git(repository.common, "worktree", "repair", aside)
    return aside


def tidy(path: str) -> None:
    """Remove the folders above a worktree of ours that are empty now: the unit's and the run's."""
    for folder in list(Path(path).parents)[:2]:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _free_name(path: str) -> str:
    number = 1
    while os.path.lexists(f"{path}.leftover-{number}"):
        number += 1
    return f"{path}.leftover-{number}"


def _unlocked(git: Git, found: Registration) -> Registration:
    """Wait until a lock is gone. One of a git that was killed while it made the worktree is lifted. Raises."""
    until = time.monotonic() + git.lock_wait_s
    lock = Path(found.admin, "locked")
    while lock.exists():
        if time.monotonic() > until:
            if found.locked == _BEING_MADE:
                lock.unlink(missing_ok=True)
                break
            raise IsolationError(
                f"the worktree {found.path} is locked: {found.locked or 'no reason given'}",
                f"when it is not needed any more: git worktree unlock {shlex.quote(found.path)}",
                "worktree-locked",
            )
        time.sleep(_PAUSE_S)
    return found


def _open_up(folder: str) -> None:
    """Give back the permissions without which folders cannot be emptied."""
    Path(folder).chmod(stat.S_IRWXU)
    for entry in Path(folder).iterdir():
        if entry.is_dir() and not entry.is_symlink():
            _open_up(str(entry))
