"""Carries out a merge: the git room merges part by part, the step's check runs after each as a command of its own.

Guarantees: the check is timed out, killed, redacted and logged like any command; one that can't be started, times out
or is killed is no verdict, so the merge has none either, and nothing of it stands; done again, it gives the same.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from interlock.dispatch.attempt import Attempt, Cancel, now_ms
from interlock.dispatch.base import MergeAsk, Outcome, Request
from interlock.dispatch.git.base import CheckResult, CheckUnavailableError, IsolationError, Merged, Part
from interlock.dispatch.git.merge import merge_all
from interlock.dispatch.isolated import Isolation, told
from interlock.model import canon
from interlock.model.outcome import feedback_of
from interlock.model.states import Reason

_NO_VERDICT: Final = (126, 127)
Run = Callable[[Attempt, select.poll, int], Outcome]


class _CheckAttempt(Attempt):
    """One run of the check, ended with the merge that it belongs to."""

    def __init__(self, merge: Attempt, request: Request, *, quiet: bool) -> None:
        super().__init__(request)
        self._merge = merge
        self.quiet = quiet

    @property
    def cancelled(self) -> Cancel | None:
        """The wish to end the merge."""
        return self._merge.cancelled


class Merger:
    """One merge under way, in the thread that calls."""

    def __init__(self, attempt: Attempt, run: Run, poller: select.poll, wake_fd: int) -> None:
        self._attempt = attempt
        self._run = run
        self._poller = poller
        self._wake_fd = wake_fd
        self._last: Outcome | None = None
        self._notices: dict[str, None] = {}

    def carry_out(self, ask: MergeAsk, isolation: Isolation, environ: Mapping[str, str] | None) -> Outcome:
        """Merge; the artifact is the output."""
        attempt = self._attempt
        attempt.started_at = now_ms()
        if attempt.cancelled is not None:
            return attempt.never_began(None, "cancelled before it began")
        try:
            base = isolation.resolved(ask.worktree)
            check = self._check if ask.checked else None
            parts = [
                Part(index=p.index, item_json=p.item_json, commit=p.commit, ref=p.ref, base=p.taken_base)
                for p in ask.parts
            ]
            place = isolation.repository(base.root)
            merged = merge_all(place, base.path, base.commit, ask.branch, parts, check, ask.at_s, environ=environ)
        except CheckUnavailableError as error:
            return self._unavailable(error)
        except IsolationError as error:
            return attempt.never_began(Reason.ISOLATION_FAILED, told(error))
        now = now_ms()
        return Outcome(
            dispatch=attempt.request.dispatch,
            status="ok",
            output=artifact(merged),
            is_json=True,
            process=None if self._last is None else self._last.process,
            log=None if self._last is None else self._last.log,
            notices=tuple(self._notices),
            started_at=attempt.started_at,
            ended_at=now,
        )

    def _unavailable(self, error: CheckUnavailableError) -> Outcome:
        last = self._last
        if self._attempt.cancelled is not None or last is None:
            return self._attempt.never_began(None, "cancelled")
        ended = msgspec.structs.replace(last, status="failed", output=b"", error=error.message)
        return ended if last.reason is not None else msgspec.structs.replace(ended, reason=Reason.SPAWN_FAILED)

    def _check(self, folder: Path, _index: int) -> CheckResult:
        request = msgspec.structs.replace(self._attempt.request, cwd=str(folder))
        ended = self._run(
            _CheckAttempt(self._attempt, request, quiet=self._last is not None), self._poller, self._wake_fd
        )
        self._last = ended
        self._notices.update(dict.fromkeys(ended.notices))
        output = feedback_of(ended.output)
        if ended.status != "ok" or ended.exit_code is None or ended.exit_code in _NO_VERDICT:
            return CheckResult(passed=False, feedback=ended.error or output, unavailable=True)
        return CheckResult(passed=ended.exit_code == 0, feedback=output)


def artifact(merged: Merged) -> bytes:
    """Return what a merge came to as the step's artifact."""
    built: dict[str, Any] = msgspec.to_builtins(merged)
    return canon.dumps({name: built[name] for name in ("branch", "tree", "merged", "conflicts", "rejected")})
