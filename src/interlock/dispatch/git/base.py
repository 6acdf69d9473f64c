"""The words of the room: what is asked for a worktree, what an attempt left in it, what a merge came to.

All values are plain data. Commits are full object names; paths are absolute and may hold surrogates for bytes that are
no UTF-8. What is kept beside a ref stands under the ref's name with a suffix: `.base`, `.stash-N`, `.commit-N`, `.ours`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from interlock.errors import DispatchRefusedError, InterlockError

REFS: Final = "refs/interlock/"
BRANCHES: Final = "refs/interlock-branches/"
"""Where each branch that interlock made stood when it last moved it: another place means that it is the user's."""


class IsolationError(DispatchRefusedError):
    """A worktree, a commit or a merge cannot be made; nothing was lost."""

    def __init__(self, message: str, hint: str = "", code: str = "no-isolation") -> None:
        super().__init__(code, message, hint)


class CheckUnavailableError(InterlockError):
    """A merge's check could not be judged: the merge can be done again, and gives the same commits."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__("check-unavailable", message, "mend the check, then run again")
        self.index = index


class WorktreeAsk(msgspec.Struct, frozen=True, kw_only=True):
    """A worktree for one attempt."""

    root: str
    """The project's root; the repository is the one around it."""
    commit: str
    """Where the worktree begins."""
    path: str
    """`<state dir>/worktrees/<run>/<unit, made safe>/<attempt>`."""
    ref: str
    """`refs/interlock/<run>/<unit, made safe>/<attempt>`: holds what is kept."""
    cwd: str = "."
    """The step's `cwd`, relative to the project's root."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt left: `commit` is its HEAD and everything unignored that it had not committed."""

    path: str
    ref: str
    commit: str
    base: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one item brings to a merge."""

    index: int
    item_json: bytes
    commit: str
    ref: str
    base: str | None = None
    """Where it began, when no attempt has kept that beside `ref`; "" for where the merge begins."""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a check found a merge. `unavailable` says that it could not be judged, and `feedback` why."""

    passed: bool
    feedback: str = ""
    unavailable: bool = False


class MergedItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item whose work is on the branch; `commit` is the merge."""

    index: int
    item: Any
    ref: str
    commit: str


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """An item whose work does not fit to what was merged before it. Both commits are kept."""

    index: int
    item: Any
    ref: str
    paths: tuple[str, ...]
    """Bytes that are no UTF-8 are written as `\\xNN`."""
    ours: str
    theirs: str


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """An item whose merge the check found red; it is not on the branch, its work is still under `ref`."""

    index: int
    item: Any
    ref: str
    feedback: str


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all parts, each in exactly one list, in item order."""

    branch: str
    tree: str
    commit: str
    merged: tuple[MergedItem, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    rejected: tuple[Rejected, ...] = ()
