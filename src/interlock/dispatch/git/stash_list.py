"""Takes one entry off the stash, by its commit.

git itself drops entries by number only, and one that is pushed in that moment shifts the numbers: somebody else's would
go. Guarantee: under git's own lock on the stash only the entry of that commit goes, whoever pushes meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

from interlock.dispatch.git.base import IsolationError
from interlock.dispatch.git.command import Git

_STASH: Final = "refs/stash"
_PAUSE_S: Final = 0.005


def take_off(git: Git, common: str, commit: str) -> None:
    """Remove the entry of `commit`; one that is not there is as good. Raises IsolationError while it stays locked."""
    until = time.monotonic() + git.lock_wait_s
    while not _taken_off(git, common, commit):
        if time.monotonic() > until:
            raise IsolationError(
                f"another git holds {Path(common, _STASH)}.lock",
                "wait until it has ended; if none runs any more, remove the file",
                "git-locked",
            )
        time.sleep(_PAUSE_S)


def _taken_off(git: Git, common: str, commit: str) -> bool:
    """Try once; False when somebody else is at it, or was in between."""
    log, ref, lock = (Path(common, place) for place in (f"logs/{_STASH}", _STASH, f"{_STASH}.lock"))
    if not log.exists():
        # kept in other ways than in files: git's own way is the only one
        return _by_number(git, common, commit)
    try:
        descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return False
    held = True
    try:
        lines = log.read_bytes().splitlines(keepends=True)
        left = [line for line in lines if line.split(b" ", 2)[1] != commit.encode()]
        if left and len(left) < len(lines):
            os.write(descriptor, left[-1].split(b" ", 2)[1] + b"\n")
            _write(log, left)
            lock.rename(ref)
            held = False
    finally:
        os.close(descriptor)
        if held:
            lock.unlink()
    if left or not lines:
        return True
    # as `git stash drop` does: a stash without an entry is none; if it is another one by now, it is looked at again
    return git(common, "update-ref", "-d", _STASH, commit, allowed=(0, 1, 128)).code == 0


def _write(log: Path, lines: list[bytes]) -> None:
    """Replace the log, each entry beginning at the one before it."""
    last = b"0" * len(lines[0].split(b" ", 1)[0])
    chained = []
    for line in lines:
        chained.append(last + b" " + line.split(b" ", 1)[1])
        last = line.split(b" ", 2)[1]
    beside = log.with_name("stash.interlock")
    beside.write_bytes(b"".join(chained))
    beside.rename(log)


def _by_number(git: Git, common: str, commit: str) -> bool:
    listed = git(common, "reflog", "show", "--format=%H", _STASH, "--", allowed=(0, 128)).text.splitlines()
    with contextlib.suppress(ValueError):
        git(common, "reflog", "delete", "--updateref", "--rewrite", f"{_STASH}@{{{listed.index(commit)}}}")
        if len(listed) == 1:
            git(common, "update-ref", "-d", _STASH, commit, allowed=(0, 1, 128))
    return True
