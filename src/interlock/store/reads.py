"""The reading half of a SQLite journal. Nothing here writes, and no statement stays open between calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from interlock.errors import JournalCorruptError, StoreError
from interlock.model.outcome import PLACEHOLDERS
from interlock.model.run import Lease
from interlock.store import rows
from interlock.store.artifacts import Artifacts, of_step
from interlock.store.attempt_rows import Spent, TreeRow, UsageSeen
from interlock.store.base import (
    ApprovalRow,
    AttemptRow,
    Census,
    EventRow,
    Loaded,
    RequestRow,
    RunRow,
    StepRow,
    UnitRow,
)
from interlock.store.connection import Connection
from interlock.store.migrate import DIALECT
from interlock.store.sql import queries

_PAGE: Final = 1_000
_ALL: Final = -1
"""SQLite's LIMIT for no limit."""
_LAST_STEP: Final = 1 << 31
USAGE_SEEN: Final = 500
"""How many of the project's latest prompts a driver looks at to guess what the next ones use."""


class Reader:
    """Verbs that only read."""

    def __init__(self, db: Connection, artifacts: Artifacts) -> None:
        self._db = db
        self._artifacts = artifacts
        self._queries: Mapping[str, str] = queries(DIALECT)

    @property
    def notice(self) -> str:
        """Something a person should know about how the journal was opened, else empty."""
        return self._db.notice

    def view(self) -> AbstractContextManager[None]:
        """Let the reads inside see one moment."""
        return self._db.read()

    def _all(self, query: str, *values: object) -> list[Any]:
        return self._db.raw.execute(self._queries[query], values).fetchall()

    def _one(self, query: str, *values: object) -> Any:  # noqa: ANN401 - a row is what the query selects
        return self._db.raw.execute(self._queries[query], values).fetchone()

    @contextmanager
    def _of(self, run_id: str) -> Iterator[int]:
        """Let the reads inside see one moment of a run, which may be removed meanwhile; give its number."""
        with self._db.read():
            yield self._seq(run_id)

    def _seq(self, run_id: str) -> int:
        row = self._one("run_seq", run_id)
        if row is None:
            raise StoreError("run-not-found", f"there is no run {run_id}", "`interlock list` shows the runs")
        return int(row[0])

    def read_lease(self, run_id: str) -> Lease | None:
        """The lease as it stands, released or not."""
        with self._db.guard():
            row = self._one("read_lease", run_id)
            return None if row is None else rows.lease(row)

    def unreleased_leases(self, workflow: str | None = None) -> list[Lease]:
        """The leases that were not released, of the workflow's runs or of all, newest run first."""
        with self._db.guard():
            return [rows.lease(row) for row in self._all("unreleased_leases", workflow)]

    def requests(self, run_id: str, *, open_only: bool = True) -> list[RequestRow]:
        """Requests in order."""
        with self._of(run_id):
            return [rows.request_row(row) for row in self._all("requests", run_id, int(open_only))]

    def open_requests(self, run_id: str) -> list[RequestRow]:
        """Open requests of a run without a parent, and of all runs below it, in order."""
        with self._of(run_id):
            return [rows.request_row(row) for row in self._all("open_requests", run_id)]

    def run(self, run_id: str) -> RunRow:
        """One run."""
        with self._of(run_id):
            return rows.run_row(self._one("run_by_id", run_id))

    def runs(
        self,
        *,
        limit: int | None = None,
        state: str | None = None,
        workflow: str | None = None,
        children: bool = False,
        unfinished: bool = False,
    ) -> list[RunRow]:
        """Newest first; child runs only when asked for. `unfinished` leaves out those that have ended."""
        if workflow is not None and not _storable(workflow):
            return []
        most = _ALL if limit is None else limit
        with self._db.guard():
            found = self._all("runs", state, workflow, int(children), most, int(unfinished))
            return [rows.run_row(row) for row in found]

    def children(self, run_id: str) -> list[RunRow]:
        """The run's own child runs, oldest first."""
        with self._of(run_id):
            return [rows.run_row(row) for row in self._all("child_runs", run_id)]

    def match(self, prefix: str) -> list[str]:
        """Ids of runs that start with `prefix`, newest first, at most ten. A blank prefix matches nothing."""
        if not prefix or not _storable(prefix):
            return []
        with self._db.guard():
            return [row[0] for row in self._all("match_runs", prefix)]

    def plan(self, run_id: str) -> tuple[str, bytes]:
        """Hash and JSON of the run's plan, as stored."""
        with self._of(run_id):
            tagged, text = self._one("plan_of_run", run_id)
            return tagged, text

    def steps(self, run_id: str) -> list[StepRow]:
        """Step rows without the content of artifacts that lie in files."""
        with self._of(run_id):
            return [rows.step_row(row) for row in self._all("steps", run_id)]

    def artifact(self, run_id: str, step: int) -> bytes | None:
        """The whole artifact; None when absent."""
        with self._of(run_id):
            row = self._one("artifact", run_id, step)
            if row is None:
                raise StoreError("step-not-found", f"run {run_id} has no step {step}")
        content, tagged, size = row
        return self._from_file(run_id, step, tagged) if content is None and size is not None else content

    def _from_file(self, run_id: str, step: int, tagged: str) -> bytes:
        try:
            return self._artifacts.get(tagged)
        except JournalCorruptError as error:
            # the file of a run that was removed meanwhile is not missing
            with self._of(run_id):
                raise of_step(error, *self._one("artifact_owner", tagged, run_id, step)) from None

    def load(self, run_id: str) -> Loaded:
        """Read what a driver needs, in one consistent view, artifacts included."""
        with self._of(run_id) as seq:
            spent = self._spent(run_id)
            return Loaded(
                run=rows.run_row(self._one("run_by_id", run_id)),
                plan_json=self._one("plan_of_run", run_id)[1],
                steps=tuple(self._whole(run_id, rows.step_row(row)) for row in self._all("steps", run_id)),
                open=tuple(rows.attempt_row(row) for row in self._all("open_attempts", seq)),
                raised=dict(self._all("raised", seq)),
                accepted=dict(self._all("accepted", seq)),
                notices=self._notices(seq),
                parked=dict(self._all("parked", seq)),
                granted=dict(self._all("granted", seq)),
                usage_seen=tuple(rows.usage_seen(row) for row in self._all("usage_history", USAGE_SEEN)),
                sessions=dict(filter(None, map(rows.session_usage, self._all("session_usage", seq)))),
                dispatched=spent.units,
                tokens=spent.tokens,
                cost_usd=spent.cost_usd,
                last_at=self._one("last_event_at", seq)[0],
                counted_at=self._one("last_move_at", seq)[0],
            )

    def _whole(self, run_id: str, step: StepRow) -> StepRow:
        if step.artifact is not None or step.artifact_size is None or step.artifact_hash is None:
            return step
        fields = {name: getattr(step, name) for name in StepRow.__struct_fields__}
        return StepRow(**{**fields, "artifact": self._from_file(run_id, step.step, step.artifact_hash)})

    def spent(self, run_id: str) -> Spent:
        """What the run used so far."""
        with self._of(run_id):
            return self._spent(run_id)

    def _spent(self, run_id: str) -> Spent:
        tokens, cost, estimated, unpriced, placeholders = self._one("spent", PLACEHOLDERS, run_id)
        units, corrected = self._one("dispatched", run_id)
        return Spent(
            units=units,
            tokens=tokens,
            cost_usd=cost,
            estimated=estimated,
            unpriced=unpriced,
            corrected=corrected,
            placeholders=placeholders,
        )

    def units(
        self, run_id: str, *, step: int | None = None, state: str | None = None, limit: int | None = None
    ) -> Iterator[UnitRow]:
        """Stream units ordered by (step, ordinal), a page at a time."""
        with self._db.guard():
            seq = self._seq(run_id)
        place = (-1, -1) if step is None else (step, -1)
        last = _LAST_STEP if step is None else step
        left = limit
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            with self._db.guard():
                page = [rows.unit_row(row) for row in self._all("units", seq, *place, last, state, size)]
                # half of a run that was removed meanwhile is none
                self._seq(run_id)
            yield from page
            if len(page) < size:
                return
            place = (page[-1].step, page[-1].ordinal)
            left = None if left is None else left - size

    def attempts(self, run_id: str, step: int, unit: int) -> list[AttemptRow]:
        """Attempts of one unit in order."""
        with self._of(run_id):
            return [rows.attempt_row(row) for row in self._all("attempts", run_id, step, unit)]

    def worktrees(self, run_id: str) -> list[TreeRow]:
        """Attempts that had a worktree, ordered by (step, unit, number)."""
        with self._of(run_id) as seq:
            return [rows.tree_row(row) for row in self._all("worktrees", seq)]

    def census(self, run_id: str) -> list[Census]:
        """Counts per step, from an index alone."""
        with self._of(run_id) as seq:
            return rows.census(self._all("census", seq), self._all("reused", seq))

    def approvals(self, run_id: str) -> list[ApprovalRow]:
        """What people said, ordered by (step, unit)."""
        with self._of(run_id) as seq:
            return [rows.approval_row(row) for row in self._all("approvals", seq)]

    def notices(self, run_id: str) -> frozenset[str]:
        """Codes of what was told once in this run."""
        with self._of(run_id) as seq:
            return self._notices(seq)

    def _notices(self, seq: int) -> frozenset[str]:
        return frozenset(row[0] for row in self._all("notices", seq))

    def usage_history(self, limit: int) -> list[UsageSeen]:
        """What engines were seen to use, in all runs, latest first."""
        with self._db.guard():
            return [rows.usage_seen(row) for row in self._all("usage_history", limit)]

    def events(self, run_id: str, after: int = 0, limit: int | None = None) -> list[EventRow]:
        """Events with a greater id, in order."""
        with self._of(run_id):
            found = self._all("events", run_id, after, _ALL if limit is None else limit)
            return [rows.event_row(run_id, row) for row in found]

    def referenced_artifacts(self) -> frozenset[str]:
        """Hashes of the artifacts that lie in files and are named by a step."""
        with self._db.guard():
            return frozenset(row[0] for row in self._all("referenced_artifacts"))


def _storable(text: str) -> bool:
    """Tell whether any row could hold the text: a file's name may have bytes that are none."""
    return text.isprintable() or not any("\ud800" <= letter <= "\udfff" for letter in text)
