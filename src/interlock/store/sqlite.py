"""The journal in SQLite: the protocol of `store/base.py` over one file, with artifacts and spool beside it.

Guarantees: each verb is one transaction; `commit` checks holder and term inside it and without them writes ends of
attempts only; what a batch does to rows and events is in `writes.py`. Several processes may use one journal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from interlock.errors import StoreError
from interlock.model.canon import sha256
from interlock.model.events import AttemptFinished, Event, StepMoved
from interlock.model.run import Lease
from interlock.model.states import RUN_ENDED, AttemptState, RunState, StepState
from interlock.store import rows
from interlock.store.artifacts import INLINE_MAX_BYTES, Artifacts
from interlock.store.base import RequestKind
from interlock.store.batch import Batch, RuleError, ShortError
from interlock.store.births import Below, Committed, NewRun
from interlock.store.connection import BUSY_MS, Connection, open_file, open_memory, open_read_only
from interlock.store.faults import BadRowError, translated
from interlock.store.held import AlreadyRunningError, Held, driven_error, unreleased
from interlock.store.meta import RUN_CREATED, is_json, to_json
from interlock.store.reads import Reader
from interlock.store.room import Room
from interlock.store.spool import Spool
from interlock.store.writes import write

_OF_A_RUN: Final = (
    "delete_events",
    "delete_attempts",
    "delete_units",
    "delete_steps",
    "delete_requests",
    "delete_raises",
    "delete_parked",
    "delete_granted",
    "delete_approvals",
    "delete_accepted",
    "delete_notices",
    "delete_lease",
    "delete_plan",
    "delete_run",
)


class SqliteStore(Reader):
    """One project's journal in a SQLite file."""

    def __init__(self, db: Connection, folder: Path) -> None:
        super().__init__(db, Artifacts(folder / "artifacts"))
        self._folder = folder
        self._spool = Spool(folder / "spool")

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        read_only: bool = False,
        on_commit: Callable[[str], None] | None = None,
        busy_ms: int = BUSY_MS,
    ) -> SqliteStore:
        """Open the journal at `path`; create and migrate it unless `read_only`.

        `on_commit` is called with "before" and "after" around every commit of a write transaction.
        """
        if read_only:
            return cls(open_read_only(path, busy_ms), path.parent)
        try:
            return cls(open_file(path, on_commit, busy_ms), path.parent)
        except StoreError as error:
            # with the room `gc` can remove runs that take less, and their logs
            if error.code != "journal-full" or not Spool(path.parent / "spool").give_room():
                raise
            return cls(open_file(path, on_commit, busy_ms), path.parent)

    @classmethod
    def open_if_any(cls, path: Path) -> SqliteStore | None:
        """Open for reading; None where there is none yet, nor more than the empty file of a driver killed at once."""
        try:
            return cls.open(path, read_only=True)
        except StoreError as error:
            if error.code == "no-journal":
                return None
            raise

    @classmethod
    def in_memory(cls, folder: Path, *, on_commit: Callable[[str], None] | None = None) -> SqliteStore:
        """A journal that ends with this object; artifacts and spool lie in `folder`."""
        return cls(open_memory(on_commit), folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the connection; of another thread's, its end does. Idempotent."""
        with suppress(sqlite3.ProgrammingError):
            self._db.close()

    def create_run(self, new: NewRun, lease: Lease, *, alone: Held | None = None) -> str:
        """Insert run, steps and lease in one transaction and return the run's id, or that of the run with its key."""
        params_hash = sha256(new.params_json)
        with self._db.write() as raw:
            if alone is not None:
                self._refuse_beside(new.workflow, alone)
            if new.forked_from is not None:
                # what it takes over may have been removed since somebody looked
                self._seq(new.forked_from)
            if new.key is not None:
                known = self._one("keyed_run", new.key, new.plan_hash, params_hash)
                if known is not None:
                    return str(known[0])
            batch = self._insert(raw, new, params_hash, careful=False)
            batch.one("insert_lease", *rows.lease_columns(lease), batch.seq)
            batch.flush()
        return new.id

    def _refuse_beside(self, workflow: str, held: Held) -> None:
        for lease in self.unreleased_leases(workflow):
            if held(lease):
                raise AlreadyRunningError(lease.run_id)

    def _insert(self, raw: sqlite3.Connection, new: NewRun, params_hash: str, *, careful: bool) -> Batch:
        above = (new.parent, new.parent_unit, new.root, new.forked_from, new.fork_step)
        tail = (new.plan_hash, params_hash, new.params_json, new.created_at)
        seq = raw.execute(self._queries["insert_run"], (new.id, new.workflow, new.key, *above, *tail)).lastrowid
        assert seq is not None  # noqa: S101 - an INSERT that did not raise has a row
        batch = Batch(raw, self._queries, seq, RunState.ACTIVE, last_event=0, careful=careful)
        batch.one("insert_plan", seq, new.plan_json)
        steps = [(seq, i, step.id, " ".join(step.stages), step.each, step.child) for i, step in enumerate(new.steps)]
        batch.many("insert_step", steps)
        batch.log([(new.created_at, RUN_CREATED, None, None, _birth(new))])
        return batch

    def take_lease(self, lease: Lease, over: Lease | None) -> bool:
        """Write `lease` if the row still equals `over` and the term rises; False when somebody was faster."""
        if over is None:
            # a run is born with its lease
            return False
        with self._db.write() as raw:
            seq = self._seq(lease.run_id)
            known = (over.holder, over.term, over.released, over.renewed_ms, lease.term)
            return raw.execute(self._queries["take_lease"], (*rows.lease_columns(lease), seq, *known)).rowcount == 1

    def renew(self, lease: Lease) -> bool:
        """Write the new times of an unchanged holder and term; False: lost."""
        times = (lease.renewed_ms, lease.expires_ms, lease.expires_boot_ms)
        with self._db.write() as raw:
            values = (*times, lease.run_id, lease.holder, lease.term)
            return raw.execute(self._queries["renew_lease"], values).rowcount == 1

    def release(self, lease: Lease) -> None:
        """Mark released, keeping holder and times as evidence. A lease that is not ours any more is left alone."""
        with self._db.write() as raw:
            raw.execute(self._queries["release_lease"], (lease.run_id, lease.holder, lease.term))

    def commit(self, lease: Lease, events: Sequence[Event], below: Sequence[Below] = ()) -> Committed:
        """Write rows and events of the batch in one transaction, in order, then those of child runs."""
        parts = (Below(run_id=lease.run_id, events=events), *below)
        large = self._put_artifacts(parts)
        try:
            return self._commit(lease, parts, large, careful=False)
        except ShortError:
            pass
        except (RuleError, BadRowError):
            self._rescue(parts)
            raise
        try:
            return self._commit(lease, parts, large, careful=True)
        except (RuleError, BadRowError):
            self._rescue(parts)
            raise

    def _commit(self, lease: Lease, parts: Sequence[Below], large: Mapping[str, bytes], *, careful: bool) -> Committed:
        refused: list[str] = []
        with self._db.write() as raw:
            for tagged, content in large.items():
                # one that was old may have been swept before it was named again
                if not self._artifacts.has(tagged):
                    self._artifacts.put(tagged, content)
            if self._one("fence", lease.run_id, lease.run_id, lease.holder, lease.term) is None:
                known = [part for part in parts if part.new is None]
                lost = [self._finishes(part.run_id, part.events).refused for part in known]
                return Committed(lost=True, refused=tuple(dispatch for one in lost for dispatch in one))
            for part in parts:
                batch = self._batch(raw, lease, part, careful=careful)
                write(batch, part.events)
                refused += batch.refused
        return Committed(refused=tuple(refused))

    def _batch(self, raw: sqlite3.Connection, lease: Lease, part: Below, *, careful: bool) -> Batch:
        if part.new is not None:
            return self._insert(raw, part.new, sha256(part.new.params_json), careful=careful)
        row = self._one("fence", part.run_id, lease.run_id, lease.holder, lease.term)
        if row is None:
            raise RuleError("not-of-this-run", f"run {part.run_id} is none of run {lease.run_id}'s children")
        return Batch(raw, self._queries, row[0], RunState(row[1]), last_event=row[2], careful=careful)

    def _finishes(self, run_id: str, events: Sequence[Event]) -> Committed:
        """Write the ends of attempts alone, each on its own; needs no lease. Inside a transaction.

        `lost` is not among them: it is said of another driver's attempt, and only by who holds the lease.
        """
        seq = self._seq(run_id)
        state = RunState(self._one("run_state", seq)[0])
        last: int = self._one("last_event", seq)[0]
        batch = Batch(self._db.raw, self._queries, seq, state, last_event=last, careful=True)
        write(batch, [event for event in events if _is_own_end(event)])
        return Committed(refused=tuple(batch.refused))

    def _rescue(self, parts: Sequence[Below]) -> None:
        """Record the ends in a batch that was refused for another event's sake, row by row."""
        ends = [(one.run_id, event) for one in parts if one.new is None for event in one.events if _is_own_end(event)]
        for run_id, event in ends:
            try:
                with self._db.write():
                    self._finishes(run_id, [event])
            except (RuleError, BadRowError):
                # the refused event itself; its error is on its way to the caller
                continue

    def _put_artifacts(self, parts: Sequence[Below]) -> dict[str, bytes]:
        """Write the artifacts that lie in files; return them by their names."""
        large: dict[str, bytes] = {}
        for part in parts:
            for event in part.events:
                if type(event) is StepMoved and event.state is StepState.COMPLETED and event.artifact is not None:
                    if len(event.artifact) <= INLINE_MAX_BYTES:
                        continue
                    # named by what it holds, not by what the event says; the transaction compares the two
                    large[sha256(event.artifact)] = event.artifact
        with translated(self._folder):
            for tagged, content in large.items():
                self._artifacts.put(tagged, content)
        return large

    def spool(self, run_id: str, events: Sequence[Event]) -> None:
        """Keep finishes that could not be committed in an fsynced file for the next driver."""
        finishes = [event for event in events if isinstance(event, AttemptFinished) and _is_own_end(event)]
        if finishes:
            with translated(self._spool.path(run_id)):
                self._spool.append(run_id, finishes)

    def take_spool(self, run_id: str) -> int:
        """Commit spooled finishes (those not refused) and remove the file; return how many were taken."""
        self._spool.keep_room()
        taken = 0
        place = self._spool.path(run_id)
        with translated(place):
            finishes = self._spool.read(run_id)
        while finishes:
            with self._db.write():
                taken += len(finishes) - len(self._finishes(run_id, finishes).refused)
            with translated(place):
                known, finishes = finishes, self._spool.read(run_id)
                if finishes == known:
                    # else others were put there meanwhile, perhaps by who took over from a driver that slept
                    self._spool.remove(run_id)
                    break
        return taken

    def request(self, run_id: str, kind: RequestKind, payload_json: bytes, made_by: str, at: int) -> int:
        """Append a request; needs no lease. Returns its id."""
        if not is_json(payload_json):
            raise RuleError("bad-request", f"the payload of the request '{kind}' is not JSON")
        with self._db.write() as raw:
            values = (self._seq(run_id), kind, payload_json, at, made_by)
            return int(raw.execute(self._queries["insert_request"], values).lastrowid or 0)

    def delete_run(self, run_id: str, held: Held = unreleased, *, dry_run: bool = False) -> None:
        """Remove an ended run with its child runs: rows, events and spool."""
        family = self._delete(run_id, held, dry_run=dry_run)
        if dry_run:
            return
        for _, member_id in family:
            with translated(self._spool.path(member_id)):
                self._spool.remove(member_id)

    def _delete(self, run_id: str, held: Held, *, dry_run: bool) -> list[tuple[int, str]]:
        # what may leave room for it: what was written before goes to its place, then what was kept is given
        for make_room in (self._db.write_back, self._spool.give_room):
            try:
                return self._delete_rows(run_id, held, dry_run=dry_run)
            except StoreError as error:
                if error.code != "journal-full":
                    raise
            with suppress(StoreError):
                # its place may be on the full disk too
                make_room()
        return self._delete_rows(run_id, held, dry_run=dry_run)

    def _delete_rows(self, run_id: str, held: Held, *, dry_run: bool) -> list[tuple[int, str]]:
        with self._db.write() as raw:
            family = self._removable(run_id, held)
            for member, _ in () if dry_run else family:
                for query in _OF_A_RUN:
                    raw.execute(self._queries[query], (member,))
        return family

    def _removable(self, run_id: str, held: Held) -> list[tuple[int, str]]:
        """Number and id of the run and all below it. Raises StoreError where somebody may still need them."""
        state = self._one("run_state", self._seq(run_id))[0]
        if state not in RUN_ENDED:
            raise StoreError(
                "run-not-ended",
                f"run {run_id} is {state} and may still go on",
                f"`interlock abandon {run_id}` ends it",
            )
        above = self._one("run_by_id", run_id)[8]
        if above is not None:
            raise StoreError("run-is-child", f"run {run_id} goes with its parent {above}", f"remove {above}")
        lease = self.read_lease(run_id)
        if lease is not None and held(lease):
            # one that is reopened has ended until its driver's first commit
            raise driven_error(f"run {run_id} is", run_id, lease)
        family: list[tuple[int, str]] = self._all("family", run_id)
        for _, member_id in family:
            self._refuse_needed(member_id, held)
        return family

    def _refuse_needed(self, run_id: str, held: Held) -> None:
        for fork, state in self._all("forks", run_id):
            if state not in RUN_ENDED:
                raise StoreError(
                    "run-needed",
                    f"run {run_id} is needed by its fork {fork}, which has not ended",
                    f"`interlock run {fork}` goes on with it, `interlock abandon {fork}` ends it",
                )
            lease = self.read_lease(fork)
            if lease is not None and held(lease):
                raise driven_error(f"run {run_id} is needed by its fork {fork}, which is", fork, lease)

    def sweep_artifacts(self, *, dry_run: bool = False) -> int:
        """Remove artifact files that no step names and that are over an hour old; return how many those are."""
        # inside a write transaction, so that no commit names a file between the look and the removal
        with self._db.write():
            return self._artifacts.sweep((row[0] for row in self._all("referenced_artifacts")), dry_run=dry_run)

    def give_back(self, held: Held) -> Room:
        """Give what removed runs took of the disk back to it, where nobody who holds a lease is kept waiting for it."""
        from interlock.store.shrink import shrink  # noqa: PLC0415 - only gc needs it

        return shrink(self._db, driven=any(map(held, self.unreleased_leases())))


def _is_own_end(event: Event) -> bool:
    return isinstance(event, AttemptFinished) and event.state is not AttemptState.LOST


def _birth(new: NewRun) -> str:
    steps = [(step.id, step.stages, step.each, step.child) for step in new.steps]
    names = {"workflow": new.workflow, "plan_hash": new.plan_hash, "key": new.key, "parent": new.parent}
    names |= {"parent_unit": new.parent_unit, "root": new.root}
    return to_json({**names, "forked_from": new.forked_from, "fork_step": new.fork_step, "steps": steps})
