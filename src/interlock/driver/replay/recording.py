"""A recorded run as answers: for each unit, what its dispatches were answered, in order; and what people did.

Read through the store's read verbs alone. Attempts that gave no answer (lost with their driver, aborted by a stop)
are left out; where a person or a probe answered for a unit, that result is its answer. In an export with hidden values
a unit goes by the id that it has in a replay, since that sees the hidden item only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal, Protocol

import msgspec

from interlock.decide.work import base_id
from interlock.dispatch.base import Outcome, Request
from interlock.driver.export.scrubbing import DIGEST_HIDDEN
from interlock.errors import StoreError, UsageError
from interlock.model.canon import item_digest
from interlock.model.plan import Plan, Prompt, PythonFunction
from interlock.model.states import Reason
from interlock.plan.freeze import thaw
from interlock.store.base import ApprovalRow, AttemptRow, EventRow, RunRow, StepRow, UnitRow

_TURN_MS: Final = 5_000
"""A driver takes an end in sooner than this; what was journaled later is another's."""
Kind = Literal["reopen", "go_on"]


class Recorded(Protocol):
    """What is read of a store: a journal, or an exported run."""

    def view(self) -> AbstractContextManager[None]:
        """Let the reads inside see one moment."""
        ...

    def run(self, run_id: str) -> RunRow:
        """One run."""
        ...

    def plan(self, run_id: str) -> tuple[str, bytes]:
        """Hash and JSON of its plan."""
        ...

    def steps(self, run_id: str) -> list[StepRow]:
        """Its steps."""
        ...

    def units(self, run_id: str) -> Iterator[UnitRow]:
        """Its units."""
        ...

    def attempts(self, run_id: str, step: int, unit: int) -> list[AttemptRow]:
        """Attempts of one unit, in order."""
        ...

    def approvals(self, run_id: str) -> list[ApprovalRow]:
        """What people said."""
        ...

    def artifact(self, run_id: str, step: int) -> bytes | None:
        """The artifact of one step."""
        ...

    def events(self, run_id: str) -> list[EventRow]:
        """Its history."""
        ...

    def children(self, run_id: str) -> list[RunRow]:
        """Its own child runs."""
        ...


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded end of an attempt."""

    attempt: AttemptRow
    due: int
    """When the driver took it in: ends that came together were decided on together."""
    missed: bool
    """It was an answer without a usable value, which was asked for again."""
    retry_after_ms: int | None = None
    quota_until: int | None = None


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of the recorded run."""

    row: UnitRow
    replies: tuple[Reply, ...]

    @property
    def unanswered(self) -> bool:
        """Tell whether the recorded run never got an answer for it."""
        return not self.replies and self.row.state != "completed"


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The moment at which a run that could not move went on, and what was amended for it."""

    at: int
    kind: Kind
    raises: dict[str, float] = {}
    loops: int = 0


class Grant(msgspec.Struct, frozen=True):
    """More loops for steps that were rejected."""

    at: int
    loops: int


class TakenStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that a fork took as it was: no unit of it was dispatched, and its gate was not asked."""

    row: StepRow
    artifact: bytes | None
    units: tuple[UnitRow, ...]


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """All of a recorded run that a replay looks at. Turns are those of the whole family: it goes on as one."""

    run: RunRow
    plan: Plan
    steps: tuple[StepRow, ...]
    units: dict[str, Past]
    approvals: tuple[tuple[UnitRow, ApprovalRow], ...]
    turns: tuple[Turn, ...]
    grants: tuple[Grant, ...] = ()
    """Of the whole family."""
    taken: tuple[TakenStep, ...] = ()
    children: dict[str, Recording] = {}
    """By the unit that each is."""

    def child(self, unit_id: str) -> Recording | None:
        """Return what was recorded of the run that a unit is, in all its rounds and loops."""
        return self.children.get(base_id(unit_id))


def read_recording(store: Recorded, run_id: str) -> Recording:
    """Read a run that has stopped. Raises UsageError for one that may be driven now, PlanError for a damaged plan."""
    # it may be reopened meanwhile
    with store.view():
        run = store.run(run_id)
        if run.state == "active":
            message = f"run {run_id} has not come to an end, so its record is not whole"
            raise UsageError("run-active", message, f"drive it to its end first: interlock run {run_id}")
        return _read(store, run)


def _read(store: Recorded, run: RunRow) -> Recording:
    run_id = run.id
    plan_hash, plan_json = store.plan(run_id)
    stored = list(store.units(run_id))
    rows = [msgspec.structs.replace(row, id=_replayed_id(row)) for row in stored]
    ids = {row.id: shown.id for row, shown in zip(stored, rows, strict=True)}
    told = _history(store.events(run_id), run_id)
    found = {ids.get(row.parent_unit or "", ""): _read(store, row) for row in store.children(run_id)}
    units = {row.id: Past(row=row, replies=_replies(store, run_id, row, told)) for row in rows}
    steps = tuple(store.steps(run_id))
    places = {(row.step, row.ordinal): row for row in rows}
    return Recording(
        run=run,
        plan=thaw(plan_json, plan_hash, run_id),
        steps=steps,
        units=units,
        approvals=tuple((places[said.step, said.unit], said) for said in store.approvals(run_id)),
        turns=_turns(told, found.values()),
        grants=(*told.grants, *(grant for child in found.values() for grant in child.grants)),
        children=found,
        taken=tuple(
            TakenStep(
                row=row,
                artifact=store.artifact(run_id, row.step),
                units=tuple(unit for unit in rows if unit.step == row.step),
            )
            for row in steps[: run.fork_step]
        ),
    )


def _replayed_id(row: UnitRow) -> str:
    return row.id if row.item is None else DIGEST_HIDDEN.sub(":" + item_digest(row.item), row.id)


class _History:
    """What only events tell: how a unit was left by each attempt, when quotas came back, when the run went on."""

    def __init__(self, rows: Sequence[EventRow]) -> None:
        self.ends: dict[tuple[int, int, int], dict[str, Any]] = {}
        self.quotas: list[tuple[int, str, int | None]] = []
        self.turns: list[Turn] = []
        self.grants: list[Grant] = []
        state, raises = "active", dict[str, float]()
        for row in rows:
            data = _data(row)
            if row.type == "attempt_finished" and row.step is not None and row.unit is not None:
                self.ends[row.step, row.unit, data["number"]] = {**data, "at": row.at}
            elif row.type == "engine_parked":
                self.quotas.append((row.at, data["engine"], data.get("until")))
            elif row.type == "budget_raised":
                raises = {**raises, data["name"]: data["value"]}
            elif row.type == "loops_granted":
                self.grants.append(Grant(row.at, data["more"]))
            elif row.type == "run_moved":
                if data["state"] == "active" and state != "active":
                    kind: Kind = "reopen" if state in ("failed", "abandoned") else "go_on"
                    self.turns.append(Turn(at=row.at, kind=kind, raises=raises))
                    raises = {}
                state = data["state"]
        self._see_turns(rows)

    def _see_turns(self, rows: Sequence[EventRow]) -> None:
        """Find when each end was taken in: what it led to was journaled next, unless the driver died before."""
        turn = 0
        for row in reversed(rows):
            if row.type == "attempt_finished" and row.step is not None and row.unit is not None:
                end = self.ends[row.step, row.unit, _data(row)["number"]]
                end["turn"] = turn if row.at <= turn <= row.at + _TURN_MS else row.at
            elif row.type != "attempt_started":
                turn = row.at


def _data(row: EventRow) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.json.decode(row.data, type=dict[str, Any])
    return data


def _history(rows: Sequence[EventRow], run_id: str) -> _History:
    """Raises StoreError where an event is none of this version: a journal has no such, a forged export may."""
    try:
        return _History(rows)
    except (msgspec.MsgspecError, KeyError) as error:
        message = f"an event of run {run_id} is not one that this interlock knows: {error}"
        raise StoreError("record-unreadable", message, "use the version that recorded it, or a newer one") from error


def _turns(told: _History, children: Iterable[Recording]) -> tuple[Turn, ...]:
    """Give the loops that were granted anywhere in the family to the turn that was taken with them."""
    grants = [*told.grants, *(grant for child in children for grant in child.grants)]
    found, before = [], -1
    for turn in told.turns:
        loops = max((grant.loops for grant in grants if before < grant.at <= turn.at), default=0)
        kind: Kind = "reopen" if loops else turn.kind
        found.append(msgspec.structs.replace(turn, kind=kind, loops=loops))
        before = turn.at
    return tuple(found)


def _replies(store: Recorded, run_id: str, row: UnitRow, told: _History) -> tuple[Reply, ...]:
    if row.kind == "approval":
        return ()
    found = []
    for attempt in store.attempts(run_id, row.step, row.ordinal):
        end = told.ends.get((row.step, row.ordinal, attempt.number), {})
        left = end.get("unit_state", "")
        unsure = left == "unknown" and row.state != "unknown"
        if attempt.state not in ("completed", "failed") or unsure:
            continue
        due, quota = end.get("not_before"), attempt.reason == Reason.LLM_QUOTA
        found.append(
            Reply(
                attempt=attempt,
                due=end.get("turn", attempt.ended_at or 0),
                missed=left == "pending" and not quota,
                retry_after_ms=None if due is None else max(0, due - end["at"]),
                quota_until=_until(told, attempt) if quota else None,
            )
        )
    return tuple(found)


def _until(told: _History, attempt: AttemptRow) -> int | None:
    ended = attempt.ended_at or 0
    return next((until for at, engine, until in told.quotas if engine == attempt.engine and at >= ended), None)


def outcome(recording: Recording, past: Past, number: int, request: Request, now: int) -> Outcome | None:
    """Return the recorded answer to the unit's dispatch of that number (from 0), or None when there is none."""
    row = past.row
    if number >= len(past.replies):
        if number > len(past.replies) or row.state != "completed" or _completed(past):
            return None
        # what a fork took over, a person or a probe answered has no attempt, so its exit code is what its verdict was
        code = int(_verdict(row) == "reject") if row.kind in ("gate", "probe") else None
        return Outcome(
            dispatch=request.dispatch, status="ok", exit_code=code, ended_at=now, **_output(recording, row, request)
        )
    reply = past.replies[number]
    attempt = reply.attempt
    shared: dict[str, Any] = {
        "dispatch": request.dispatch,
        "exit_code": attempt.exit_code,
        "usage": attempt.usage,
        "answered_by": attempt.answered,
        "started_at": now,
        "ended_at": now,
    }
    if attempt.state == "completed":
        return Outcome(status="ok", **shared, **_output(recording, row, request))
    return Outcome(
        status="failed",
        reason=Reason(attempt.reason or Reason.DISPATCH_ERROR),
        error=attempt.error,
        answered=row.state != "unknown",
        missed=reply.missed,
        retry_after_ms=reply.retry_after_ms,
        quota_until=reply.quota_until,
        **shared,
    )


def _verdict(row: UnitRow) -> str | None:
    said: str | None = row.verdict or msgspec.json.decode(row.result or b"{}").get("verdict")
    return said


def _completed(past: Past) -> bool:
    return any(reply.attempt.state == "completed" for reply in past.replies)


def _output(recording: Recording, row: UnitRow, request: Request) -> dict[str, Any]:
    """Return output as the work would have given it: the journal keeps what was made of it."""
    raw = row.result or b"null"
    if row.kind in ("gate", "probe"):
        said = msgspec.json.decode(raw)
        return {"output": str(said.get("feedback", said.get("output", ""))).encode()}
    if row.kind == "judge":
        said = msgspec.json.decode(raw)
        return {"output": msgspec.json.encode({k: said[k] for k in ("complete", "missing", "feedback")})}
    had_schema = recording.plan.steps[row.step].unit_schema_json is not None
    value = msgspec.json.decode(raw) if not had_schema else None
    text = value if isinstance(value, str) else None
    if isinstance(request.job.target, Prompt):
        absent = row.result is None
        return {"output": b"" if absent else raw if text is None else text.encode()}
    if text is None or isinstance(request.job.target, PythonFunction):
        return {"output": raw, "is_json": True}
    # as the command wrote it, so that a schema that the workflow has got meanwhile reads it
    return {"output": text.encode() + (b"\r\n" if text.endswith("\r") else b"\n")}
