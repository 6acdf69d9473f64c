"""What a unit did in its worktree that no branch shows: commits it moved away from, and stashes.

All worktrees of a repository share one stash. An entry is a unit's when it is new, stands on a commit that the unit
stood on, and the worktree's own log shows the reset that a stash makes (or it was made off any branch while every other
checkout is on one, and this worktree's index was written just then, or no other unit's was). What may be a unit's is
kept under refs; only what cannot be anybody else's leaves the list.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final

import msgspec

from interlock.dispatch.git.command import Git
from interlock.dispatch.git.repository import below, hold, registrations
from interlock.dispatch.git.snapshot import set_ref
from interlock.dispatch.git.stash_list import take_off

NOTE: Final = "interlock"
"""A file in a worktree's registration, by which it is known for one of ours: its base, then the stash as it was."""
_NEAR_S: Final = 2
_LINE: Final = re.compile(rb"([0-9a-f]{40,64}) ([0-9a-f]{40,64}) .* ([0-9]+) [-+][0-9]{4}(?:\t(.*))?$")


class _Stash(msgspec.Struct, frozen=True):
    commit: str
    parent: str
    when: int
    said: str


class _Log(msgspec.Struct, frozen=True):
    commits: tuple[str, ...]
    resets: tuple[int, ...]


def note(common: str, admin: str, base: str, git: Git) -> None:
    """Write down where a new worktree begins, and which stashes there are."""
    known = [stash.commit for stash in _stashes(git, common)]
    Path(admin, NOTE).write_text("\n".join([base, *known]) + "\n", encoding="ascii")


def noted(admin: str) -> tuple[str, ...] | None:
    """Return base and stashes as they were, None when this is no worktree of ours."""
    try:
        return tuple(Path(admin, NOTE).read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return None


def keep_commits(git: Git, common: str, admin: str, reached: tuple[str, ...], ref: str, head: str | None = None) -> int:
    """Keep under `<ref>.commit-N` what the worktree's HEAD stood on and neither a ref nor `reached` leads to.

    Return how many there are. The base of a worktree of ours counts as reached.
    """
    reached = (*reached, *(noted(admin) or ())[:1])
    seen = [*(one for one in _log(Path(admin)).commits), *([head] if head else [])]
    seen = [commit for commit in dict.fromkeys(seen) if commit not in reached]
    return keep_unreachable(git, common, seen, reached, ref) if seen else 0


def keep_unreachable(git: Git, common: str, commits: list[str], reached: tuple[str, ...], ref: str) -> int:
    """Keep under `<ref>.commit-N` those commits that neither a ref nor one of `reached` leads to."""
    others = ("--branches", "--tags", "--remotes", "--glob=refs/interlock/*", "--glob=refs/interlock-branches/*")
    listed = set(git(common, "rev-list", "--ignore-missing", *commits, "--not", *reached, *others).text.split())
    lost = [commit for commit in commits if commit in listed]
    if not lost:
        return 0
    tips = git(common, "merge-base", "--independent", *lost).text.split()
    for tip in sorted(tips, key=lost.index):
        keep_beside(git, common, tip, ref)
    return len(tips)


def keep_beside(git: Git, common: str, commit: str, ref: str) -> None:
    """Keep a commit under the next `<ref>.commit-N`."""
    taken = git(common, "for-each-ref", "--format=%(refname)", f"{ref}.commit-*").text.split()
    set_ref(git, common, f"{ref}.commit-{len(taken) + 1}", commit)


def keep_stashes(git: Git, common: str, admin: str, ref: str) -> int:
    """Keep under `<ref>.stash-N` what the unit stashed and take it off the shared list; return how many."""
    before = noted(admin)
    if before is None or not _any(common):
        return 0
    with hold(common):
        known = set(before[1:])
        own = _log(Path(admin))
        stood = {before[0], *own.commits}
        new = [s for s in _stashes(git, common) if s.commit not in known and s.parent in stood]
        foreign = _foreign(common, admin) if new else []
        strangers = [_log(folder) for folder in foreign]
        siblings = [Path(one.admin) for one in registrations(common) if new and one.admin != admin]
        mine = [
            stash
            for stash in new
            if _near(stash, own)
            or (
                _off_any_branch(stash, foreign)
                and (_may_have(stash, Path(admin)) or not any(_may_have(stash, sibling) for sibling in siblings))
            )
        ]
        for number, stash in enumerate(reversed(mine), 1):
            set_ref(git, common, f"{ref}.stash-{number}", stash.commit)
            if _off_any_branch(stash, foreign) or not any(_near(stash, stranger) for stranger in strangers):
                take_off(git, common, stash.commit)
    return len(mine)


def _any(common: str) -> bool:
    """Tell, without starting git, whether there can be a stash."""
    folder = Path(common)
    return (folder / "logs/refs/stash").exists() or (folder / "reftable").exists()


def _stashes(git: Git, common: str) -> list[_Stash]:
    if not _any(common):
        return []
    answer = git(common, "reflog", "show", "-z", "--format=%H %P%n%ct%n%gs", "refs/stash", "--", allowed=(0, 128))
    found = []
    for entry in os.fsdecode(answer.out).split("\0") if not answer.code else ():
        commits, _, rest = entry.strip("\n").partition("\n")
        when, _, said = rest.partition("\n")
        names = commits.split()
        if len(names) > 1:
            found.append(_Stash(names[0], names[1], int(when), said))
    return found


def _log(folder: Path) -> _Log:
    """Read where a checkout's HEAD has been, and when it was reset to where it stood."""
    commits, resets = [], []
    with contextlib.suppress(OSError):
        for line in (folder / "logs/HEAD").read_bytes().splitlines():
            if found := _LINE.match(line):
                commits.append(found[2].decode())
                if (found[4] or b"").startswith(b"reset: moving to HEAD"):
                    resets.append(int(found[3]))
    return _Log(tuple(commits), tuple(resets))


def _near(stash: _Stash, log: _Log) -> bool:
    return any(abs(stash.when - reset) <= _NEAR_S for reset in log.resets)


def _may_have(stash: _Stash, folder: Path) -> bool:
    """Tell whether the index of a worktree of ours was written as late as the stash, which leaves it clean."""
    try:
        written = (folder / "index").stat().st_mtime
        # git writes it first when it makes a worktree, before the note
        return written > (folder / NOTE).stat().st_mtime and 0 <= int(written) - stash.when <= _NEAR_S
    except OSError:
        return False


def _foreign(common: str, own: str) -> list[Path]:
    """The folders of all checkouts that are none of ours, by note or, when it is just being made, by place."""
    known = list(registrations(common))
    ours = next((str(Path(one.path).parents[2]) for one in known if one.admin == own), own)
    others = [Path(one.admin) for one in known if not below(one.path, ours)]
    return [Path(common), *(folder for folder in others if not (folder / NOTE).exists())]


def _off_any_branch(stash: _Stash, foreign: list[Path]) -> bool:
    if not stash.said.startswith(("WIP on (no branch)", "On (no branch)")):
        return False
    return all((folder / "HEAD").read_bytes().startswith(b"ref: ") for folder in foreign)
