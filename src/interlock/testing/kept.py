"""What a run's worktrees came to: every change in git, every worktree listed, the user's checkout as it was.

Everything is said in sentences, so that an empty tuple is the proof. Read with git itself, not with what is proved.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from interlock.decide.worktrees import safe_name
from interlock.dispatch.git.command import Git
from interlock.driver.worktrees import Worktrees
from interlock.testing.evidence import lines

_ON_MAIN: Final = "# branch.head main"


def lost_changes(project: Path, run_id: str) -> tuple[str, ...]:
    """Return the attempts that changed a file which is under no ref of theirs."""
    written = [line.split() for line in lines(project / "changed")]
    places = [f"refs/interlock/{run_id}/{safe_name(unit)}/{attempt}:{name}" for unit, attempt, name in written]
    if not places:
        return ()
    told = Git()(project, "cat-file", "--batch-check", given=os.fsencode("\n".join(places) + "\n")).text
    return tuple(
        f"{name} of {unit} {attempt}"
        for (unit, attempt, name), line in zip(written, told.splitlines(), strict=True)
        if line.endswith(" missing")
    )


def astray(project: Path) -> tuple[str, ...]:
    """Return worktrees that `interlock worktrees list` does not show, and what became of the user's checkout."""
    git, state = Git(), project / ".interlock"
    listed = {tree.path for tree in Worktrees(project, state).all()}
    said = git(project, "worktree", "list", "--porcelain", "-z").names()
    registered = [line.removeprefix("worktree ") for line in said if line.startswith("worktree ")][1:]
    folders = [os.path.realpath(path) for path in (state / "worktrees").glob("*/*/*")]
    checkout = git(project, "status", "--porcelain=v2", "--branch", "--show-stash").text.splitlines()
    touched = [line for line in checkout if line != _ON_MAIN and not line.startswith("# branch.oid ")]
    touched += lines(project / ".git" / "logs" / "HEAD")[1:]
    unlisted = [f"unlisted: {path}" for path in sorted({*registered, *folders} - listed)]
    return (*unlisted, *(f"the user's checkout: {line}" for line in touched))
