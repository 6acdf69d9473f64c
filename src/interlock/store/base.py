"""The journal's protocol: verbs, one transaction each. Every store passes `tests/store/conformance`.

Guarantees of every body: a verb is all or nothing; row and event are written together; what carries a `Lease`
is refused when holder and term are no longer the run's; a terminal state is never overwritten; content above
64 KiB of an artifact lies in a file named by its hash, durable before the row that names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

import msgspec

from interlock.model.events import Answered, Event, LogSpan, Origin, Process, UnitKind, Usage, Verdict
from interlock.model.run import Lease
from interlock.store.attempt_rows import Spent, TreeRow, UsageSeen
from interlock.store.births import Below, Committed, NewRun, Stage
from interlock.store.held import Held, unreleased
from interlock.store.room import Room

RequestKind = Literal["abandon", "resolve", "raise", "approve", "reject", "loops"]


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run as listed."""

    id: str
    workflow: str
    state: str
    reason: str | None
    detail: str
    outcome: str | None
    wait_until: int | None
    key: str | None
    parent: str | None
    plan_hash: str
    params_json: bytes
    created_at: int
    ended_at: int | None
    driven_ms: int
    forked_from: str | None = None
    fork_step: int = 0
    parent_unit: str | None = None
    root: str | None = None

    @property
    def family(self) -> str:
        """The run without a parent that it belongs to: whose lease, log and folder are its own too."""
        return self.root or self.id


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A step's row. `artifact` is None when absent or when it lies in a file (then `artifact_size` is set)."""

    step: int
    id: str
    state: str
    reason: str | None
    detail: str
    round: int
    loop: int
    stages: tuple[Stage, ...]
    each: bool
    child: bool
    """Its work units are child runs."""
    artifact: bytes | None
    artifact_hash: str | None
    artifact_size: int | None
    route: tuple[str, ...]
    started_at: int | None
    ended_at: int | None


class UnitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A unit with what its last attempt left; `model` is the one that answered, else the one asked for."""

    step: int
    ordinal: int
    id: str
    kind: UnitKind
    round: int
    loop: int
    index: int | None
    item: bytes | None
    feedback: bytes | None = None
    subject: str | None
    input_hash: str
    state: str
    attempt: int
    retries: int
    asks: int = 0
    not_before: int | None
    reason: str | None
    error: str
    result: bytes | None
    verdict: Verdict | None
    dispatch: str | None
    """Of the last attempt."""
    session: str | None = None
    """The agent's, by which the unit can go on."""
    base: str | None = None
    worktree: str | None = None
    """Where its last worktree is or was."""
    left: str | None = None
    """The commit that its last worktree was left at."""
    started_at: int | None
    ended_at: int | None
    engine: str | None = None
    model: str | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    reused: Origin | None = None
    """Of a fork: where it was really done."""


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """One dispatch. `engine` and `model` are whom it asked; `usage` and `answered` are None for all but prompts."""

    step: int
    unit: int
    number: int
    dispatch: str
    state: str
    reason: str | None
    error: str
    exit_code: int | None
    engine: str | None = None
    model: str | None = None
    reserve_tokens: int = 0
    """What the budget held back for it."""
    answered: Answered | None = None
    usage: Usage | None = None
    process: Process | None
    log: LogSpan | None
    reserved_at: int
    started_at: int | None
    ended_at: int | None


class ApprovalRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a person said about one approval unit, for the artifact or result of that hash. `note` is content."""

    step: int
    unit: int
    at: int
    made_by: str
    verdict: Verdict
    subject: str
    override: bool
    note: str


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the append-only history. `data` is a JSON object of ids, states and reasons."""

    id: int
    run_id: str
    at: int
    type: str
    step: int | None
    unit: int | None
    data: bytes


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """Something a person asked of a run. `payload_json` depends on `kind`."""

    id: int
    run_id: str
    kind: RequestKind
    payload_json: bytes
    made_at: int
    made_by: str
    outcome: str | None


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """Effective work units (last round and loop) of a step, by state, and failures by reason."""

    step: int
    by_state: dict[str, int]
    by_reason: dict[str, int]
    reused: int = 0


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a driver needs to go on. `units` are ordered by (step, ordinal); `open` are attempts without end."""

    run: RunRow
    plan_json: bytes
    steps: tuple[StepRow, ...]
    open: tuple[AttemptRow, ...]
    raised: dict[str, float]
    accepted: dict[str, str]
    notices: frozenset[str]
    parked: dict[str, int | None]
    """Engines without quota, and until when (None: nobody knows)."""
    granted: dict[int, int]
    """Loops granted beyond the plan, by step."""
    usage_seen: tuple[UsageSeen, ...]
    """The latest of the project, latest first."""
    sessions: dict[str, Usage]
    """What agents' sessions consumed in this run, where all of it is known."""
    dispatched: int
    tokens: int
    cost_usd: float
    last_at: int
    """When the last event happened, its own or below it; `counted_at`: up to when its driven time is counted."""
    counted_at: int


class Store(Protocol):
    """One project's journal. Raises StoreError and its children; methods may be called from one thread only.

    A run that does not exist is a StoreError with code `run-not-found`, in every verb that names one.
    """

    @property
    def notice(self) -> str:
        """Something a person should know about how the journal was opened, else empty."""
        ...

    def create_run(self, new: NewRun, lease: Lease, *, alone: Held | None = None) -> str:
        """Insert run, steps and lease in one transaction and return the run's id.

        With a key whose unfinished run of the same plan and params exists, insert nothing and return that run's id;
        one that finished is returned too. With `alone` raise AlreadyRunningError while a run of the workflow has a
        lease that is held. A fork of a run that is not there (any more) is refused.
        """
        ...

    def view(self) -> AbstractContextManager[None]:
        """Let the reads inside see one moment, whatever is committed meanwhile. Nothing may be written inside."""
        ...

    def read_lease(self, run_id: str) -> Lease | None:
        """The lease as it stands, released or not."""
        ...

    def unreleased_leases(self, workflow: str | None = None) -> list[Lease]:
        """The leases that were not released, of the workflow's runs or of all, newest run first."""
        ...

    def take_lease(self, lease: Lease, over: Lease | None) -> bool:
        """Write `lease` if the row still equals `over` (holder, term, released, renewed_ms) and the term rises.

        False when somebody was faster: another taker, or the holder itself that renewed or released.
        """
        ...

    def renew(self, lease: Lease) -> bool:
        """Write the new times of an unchanged holder and term; False: lost."""
        ...

    def release(self, lease: Lease) -> None:
        """Mark released, keeping holder and times as evidence. A lease that is not ours any more is left alone."""
        ...

    def commit(self, lease: Lease, events: Sequence[Event], below: Sequence[Below] = ()) -> Committed:
        """Write rows and events of the batch in one transaction, in order, then those of child runs of the lease's run.

        Raises StoreError with nothing written when the journal cannot be written. When a rule or the schema refuses
        one event (codes `gate-not-passed`, `illegal-move`, `run-not-active`, `units-open`, `bad-row`, ...), the ends
        of attempts that stand on their own are still recorded before it is raised; spooling them again does no harm.
        """
        ...

    def spool(self, run_id: str, events: Sequence[Event]) -> None:
        """Keep finishes that could not be committed in an fsynced file for the next driver. Raises StoreError."""
        ...

    def take_spool(self, run_id: str) -> int:
        """Commit spooled finishes (those not refused), remove the file, keep room for others; return how many were taken."""
        ...

    def request(self, run_id: str, kind: RequestKind, payload_json: bytes, made_by: str, at: int) -> int:
        """Append a request; needs no lease. Returns its id. Refused (`bad-request`) when the payload is not JSON."""
        ...

    def requests(self, run_id: str, *, open_only: bool = True) -> list[RequestRow]:
        """Requests in order."""
        ...

    def open_requests(self, run_id: str) -> list[RequestRow]:
        """Open requests of a run without a parent, and of all runs below it, in order."""
        ...

    def load(self, run_id: str) -> Loaded:
        """Read what a driver needs. Artifacts are read fully, from their files where they lie there."""
        ...

    def units(
        self, run_id: str, *, step: int | None = None, state: str | None = None, limit: int | None = None
    ) -> Iterator[UnitRow]:
        """Stream units ordered by (step, ordinal). A run that is removed meanwhile raises, and never seems shorter."""
        ...

    def attempts(self, run_id: str, step: int, unit: int) -> list[AttemptRow]:
        """Attempts of one unit in order."""
        ...

    def worktrees(self, run_id: str) -> list[TreeRow]:
        """Attempts that had a worktree, ordered by (step, unit, number)."""
        ...

    def run(self, run_id: str) -> RunRow:
        """One run. Raises StoreError with code `run-not-found`."""
        ...

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
        ...

    def children(self, run_id: str) -> list[RunRow]:
        """The run's own child runs, oldest first."""
        ...

    def match(self, prefix: str) -> list[str]:
        """Ids of runs that start with `prefix`, newest first, at most ten."""
        ...

    def plan(self, run_id: str) -> tuple[str, bytes]:
        """Hash and JSON of the run's plan, as stored."""
        ...

    def steps(self, run_id: str) -> list[StepRow]:
        """Step rows without the content of artifacts that lie in files."""
        ...

    def artifact(self, run_id: str, step: int) -> bytes | None:
        """The whole artifact."""
        ...

    def census(self, run_id: str) -> list[Census]:
        """Counts per step, from an index, fast on a run of 100,000 units."""
        ...

    def spent(self, run_id: str) -> Spent:
        """What the run and those below it used so far; reads every attempt's row once."""
        ...

    def approvals(self, run_id: str) -> list[ApprovalRow]:
        """What people said, ordered by (step, unit)."""
        ...

    def notices(self, run_id: str) -> frozenset[str]:
        """Codes of what was told once in this run."""
        ...

    def usage_history(self, limit: int) -> list[UsageSeen]:
        """What engines were seen to use, in all runs, latest first."""
        ...

    def events(self, run_id: str, after: int = 0, limit: int | None = None) -> list[EventRow]:
        """Events with a greater id, in order. Ids count from 1 in each run."""
        ...

    def delete_run(self, run_id: str, held: Held = unreleased, *, dry_run: bool = False) -> None:
        """Remove an ended run with its child runs: rows, events and spool.

        Refused (`run-not-ended`, `run-driven`, `run-needed`, `run-is-child`) while it or a fork of it may still go on or
        has a lease that is `held`, and for a child. `dry_run` only refuses.

        Artifact files stay for `sweep_artifacts`, since runs share them; logs are the caller's.
        """
        ...

    def referenced_artifacts(self) -> frozenset[str]:
        """Hashes of the artifacts that lie in files and are named by a step."""
        ...

    def sweep_artifacts(self, *, dry_run: bool = False) -> int:
        """Remove artifact files that no step names and that are over an hour old; return how many those are."""
        ...

    def give_back(self, held: Held) -> Room:
        """Give what removed runs took of the disk back to it, where nobody who holds a lease is kept waiting for it."""
        ...

    def close(self) -> None:
        """Release the connection. Idempotent."""
        ...
