"""An attempt in a worktree of its own: made before the process starts, settled after the last of it has ended.

Guarantees: a worktree that can't be made is an outcome that says so, and nothing began; whatever the end of the
attempt - killed, timed out, failed - what it changed is kept and told; making and settling happen in the thread that
carries out the attempt, removing on threads of the git room, awaited by `tidy` and `close`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from interlock.dispatch.attempt import Attempt
from interlock.dispatch.base import Outcome
from interlock.dispatch.git.base import IsolationError, WorktreeAsk
from interlock.dispatch.processes.leftovers import end_strays
from interlock.dispatch.processes.markers import Marker
from interlock.model.events import Tree
from interlock.model.states import Reason

if TYPE_CHECKING:
    from interlock.dispatch.git.repository import Repository
    from interlock.dispatch.git.trees import Trees

_COMMIT: Final = r"[0-9a-f]{40}|[0-9a-f]{64}"


class Isolation:
    """The worktrees of one driver's attempts. Safe from any thread but for `tidy` and `close`."""

    def __init__(self, marker: Marker, environ: Mapping[str, str] | None = None) -> None:
        self._marker = marker
        self._environ = environ
        self._trees: Trees | None = None
        self._lock = threading.Lock()
        self._paths: dict[int, list[str]] = {}
        self._resolved: dict[tuple[str, str], str] = {}

    def _room(self) -> Trees:
        """Return what makes worktrees, brought along for the first that asks: most runs work where they are."""
        with self._lock:
            if self._trees is None:
                from interlock.dispatch.git.trees import Trees  # noqa: PLC0415 - as the docstring says

                self._trees = Trees(self._environ)
            return self._trees

    def carry_out(self, attempt: Attempt, work: Callable[[], Outcome]) -> Outcome:
        """Do the work, in a worktree where one is asked for."""
        asked = attempt.request.worktree
        if asked is None:
            return work()
        if attempt.cancelled is not None:
            return attempt.never_began(None, "cancelled before it began")
        try:
            ask = self.resolved(asked)
            with self._lock:
                self._paths.setdefault(attempt.request.job.step, []).append(ask.path)
            folder = self._room().prepare(ask)
        except IsolationError as error:
            return attempt.never_began(Reason.ISOLATION_FAILED, told(error))
        attempt.request = msgspec.structs.replace(attempt.request, cwd=str(folder))
        outcome = work()
        return self._settled(attempt, ask, outcome)

    def _settled(self, attempt: Attempt, ask: WorktreeAsk, outcome: Outcome) -> Outcome:
        # what left the group could still write
        end_strays(self._marker, attempt.request.dispatch.__eq__)
        try:
            tree = self.settle(ask)
        except IsolationError as error:
            text = f"what was changed in {ask.path} could not be kept under a ref, and is still there: {told(error)}"
            if outcome.status == "ok":
                return msgspec.structs.replace(
                    outcome, status="failed", reason=Reason.ISOLATION_FAILED, error=text, tree=Tree(base=ask.commit)
                )
            return msgspec.structs.replace(outcome, error=f"{outcome.error}; {text}", tree=Tree(base=ask.commit))
        return msgspec.structs.replace(outcome, tree=tree)

    def settle(self, ask: WorktreeAsk) -> Tree:
        """Keep what was changed, or have the worktree removed. Raises IsolationError."""
        kept = self._room().settle(ask)
        if kept is None:
            return Tree(base=ask.commit)
        return Tree(base=ask.commit, commit=kept.commit, ref=kept.ref)

    def repository(self, root: str) -> Repository:
        """Return the repository around a project's root. Raises IsolationError."""
        return self._room().repository(root)

    def resolved(self, ask: WorktreeAsk) -> WorktreeAsk:
        """Return the ask with the commit that its base means now; the same all through a driver's life."""
        if re.fullmatch(_COMMIT, ask.commit):
            return ask
        from interlock.dispatch.git.command import Git  # noqa: PLC0415 - as for _room
        from interlock.dispatch.git.repository import resolve  # noqa: PLC0415 - as for _room

        with self._lock:
            found = self._resolved.get((ask.root, ask.commit)) or resolve(Git(self._environ), ask.root, ask.commit)
            if found is None:
                raise IsolationError(
                    f"'{ask.commit}' names no commit of the repository at {ask.root}",
                    "worktree_base wants a commit, a branch or a tag",
                )
            self._resolved[ask.root, ask.commit] = found
        return msgspec.structs.replace(ask, commit=found)

    def tidy(self, step: int) -> list[str]:
        """Wait until the step's removals are done; return what could not be removed, and why."""
        with self._lock:
            paths = self._paths.pop(step, [])
        if self._trees is None:
            return []
        if paths:
            self._trees.finish(paths)
        left, self._trees.left = self._trees.left, []
        return left

    def close(self) -> None:
        """Wait for all removals. Idempotent."""
        if self._trees is not None:
            self._trees.close()


def told(error: IsolationError) -> str:
    """One line: what is wrong and what to do."""
    return f"{error.message}; {error.hint}" if error.hint else error.message
