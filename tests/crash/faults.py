"""The faults that are planted in proofs, each written out once: a proof that holds under one of them proves nothing.

Guarantee: each is planted where the rule lives, in this process and what it forks, and is gone when its context ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest.mock import patch

import msgspec

from interlock.app import App
from interlock.decide import next as decide
from interlock.dispatch.commands.merging import Merger
from interlock.dispatch.git.base import CheckResult
from interlock.driver import birth, drive
from interlock.driver.loop import Loop
from interlock.store import reads, sql
from interlock.testing.suspension import Sleeper

Sql = tuple[str, str, str]
"""A query of the journal, what stands in it, and what is planted instead."""
LINGER_S: Final = 0.02

ANY_DISPATCH: Final[Sql] = ("finish_attempt", "AND dispatch = ?", "AND ? <> ''")
OVER_AN_END: Final[Sql] = ("finish_attempt", "AND ended_at IS NULL", "")
ANY_TERM: Final[Sql] = ("fence", "AND lease.term = ?", "AND ? > 0")
ANY_HOLDER: Final[Sql] = ("fence", "AND lease.holder = ?", "AND ? <> ''")
_STARTED: Final = (
    "UPDATE attempt SET state = 'started', pid = ?, start_ticks = ?, boot_id = ?, started_at = ?\n"
    "WHERE run_seq = ? AND step = ? AND unit = ? AND number = ? AND dispatch = ? AND state = 'reserved'"
)
_BORN_STARTED: Final = (
    "INSERT INTO attempt (pid, start_ticks, boot_id, started_at, run_seq, step, unit, number, dispatch, state, reserved_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'started', 0) ON CONFLICT DO UPDATE SET state = 'started'"
)
START_UNRESERVED: Final[Sql] = ("start_attempt", _STARTED, _BORN_STARTED)
FINISH_WITHOUT_DISPATCH: Final[tuple[Sql, ...]] = (ANY_DISPATCH, OVER_AN_END)
WRITE_WITHOUT_TERM: Final[tuple[Sql, ...]] = (
    ANY_TERM,
    ANY_HOLDER,
    ("fence", "AND lease.released = 0", ""),
    ("renew_lease", "AND holder = ? AND term = ? AND released = 0", "AND ? <> '' AND ? > 0"),
)
NO_VERDICT: Final[Sql] = ("complete_step", "AND NOT EXISTS", "AND 1 OR NOT EXISTS")


def planted(queries: Mapping[str, str], faults: Sequence[Sql]) -> dict[str, str]:
    """Return the queries with the faults in them; what a fault takes away must be there."""
    found = dict(queries)
    for query, good, bad in faults:
        assert good in found[query], f"{query} does not say {good}"
        found[query] = found[query].replace(good, bad)
    return found


def in_sql(faults: Sequence[Sql]) -> Callable[[], AbstractContextManager[object]]:
    """Plant the faults in every journal that is opened."""
    return lambda: patch.object(reads, "queries", lambda dialect: planted(sql.queries(dialect), faults))


def reserve_after_start(linger_s: float = LINGER_S) -> AbstractContextManager[object]:
    """Start attempts first and reserve them afterwards; a slow disk stands between, so that a kill can land there."""
    true_commit: Any = vars(Loop)["_commit"]

    def start_first(self: Any, requests: Any) -> None:
        if requests and self.stop is None:
            self._inflight.update({request.dispatch: place for request, place in requests})
            self._executor.start([request for request, _ in requests])
            time.sleep(linger_s)
        true_commit(self, [])

    return patch.object(Loop, "_commit", start_first)


def _ungated() -> AbstractContextManager[object]:
    true_promote: Any = vars(decide)["promote"]

    def promote(snap: Any, spec: Any, step: Any, now: Any) -> Any:
        return true_promote(snap, msgspec.structs.replace(spec, gate=None), step, now)

    return patch.object(decide, "promote", promote)


def _unguarded() -> AbstractContextManager[object]:
    """Take the journal's own rule about gates away."""
    true_step: Any = vars(birth)["NewStep"]
    return patch.object(birth, "NewStep", lambda **fields: true_step(**(fields | {"stages": ()})))


@contextmanager
def skipped_gate() -> Iterator[None]:
    """Complete steps without asking their gates, and the journal does not mind."""
    with _ungated(), _unguarded():
        yield


@contextmanager
def gate_skipped_on_resume() -> Iterator[None]:
    """Ask gates only in the first driver of a run: one that goes on completes steps without, and the journal likewise."""
    true_run_id: Any = vars(App)["run_id"]

    def run_id(self: Any, *arguments: Any, **named: Any) -> Any:
        with _ungated():
            return true_run_id(self, *arguments, **named)

    with patch.object(App, "run_id", run_id), _unguarded():
        yield


def unchecked_merge() -> AbstractContextManager[object]:
    """Let a merge take every part in without its check."""
    return patch.object(Merger, "_check", lambda *_: CheckResult(passed=True))


def fork_forgotten() -> AbstractContextManager[object]:
    """Let a driver that goes on with a fork know nothing of what it may take over."""
    true_run_id: Any = vars(App)["run_id"]

    def forgetful(self: Any, *arguments: Any, **named: Any) -> Any:
        with patch.object(drive, "taken_from", lambda *_: []):
            return true_run_id(self, *arguments, **named)

    return patch.object(App, "run_id", forgetful)


def never_sleeps() -> AbstractContextManager[object]:
    """Let the driver that is to be suspended run on."""
    return patch.object(Sleeper, "__call__", lambda *_: None)


def breaks_instead() -> AbstractContextManager[object]:
    """Let the driver that is to be suspended break."""

    def broken(_self: Any, _moment: str) -> None:
        raise RuntimeError("cannot sleep")

    return patch.object(Sleeper, "__call__", broken)


FAULTS: Final[dict[str, Callable[[], AbstractContextManager[object]]]] = {
    "reserve_after_start": reserve_after_start,
    "finish_without_dispatch": in_sql(FINISH_WITHOUT_DISPATCH),
    "write_without_term": in_sql(WRITE_WITHOUT_TERM),
    "skipped_gate": skipped_gate,
    "gate_skipped_on_resume": gate_skipped_on_resume,
    "unchecked_merge": unchecked_merge,
    "fork_forgotten": fork_forgotten,
    "never_sleeps": never_sleeps,
    "breaks_instead": breaks_instead,
}
