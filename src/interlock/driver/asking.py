"""Asking something of a run: a live driver applies it within a second, else the asking process does.

Guarantee: an amendment of a budget only ever raises it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from interlock.decide.now import Now
from interlock.decide.requests import raises as raised
from interlock.decide.requests import unraised
from interlock.driver.drive import World, drive, refuse_child
from interlock.driver.family import Opening
from interlock.driver.load import run_info
from interlock.driver.result import Result, result_of
from interlock.driver.standing import refuse_answer
from interlock.errors import LeaseHeldError, UsageError
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.run import RunInfo, Snapshot
from interlock.model.states import RunState
from interlock.plan.freeze import thaw
from interlock.store.base import RequestKind, RunRow

_ANSWER_S: Final = 30.0
_POLL_S: Final = 0.1


def ask(world: World, run_id: str, kind: RequestKind, payload: dict[str, Any], by: str) -> RunInfo:
    """Append a request and return the run once it was applied. Nothing is dispatched by this process.

    Raises UsageError with the reason when it is refused, LeaseHeldError when its driver does not act in time; the
    request stays asked for then.
    """
    store = world.store
    row = store.run(run_id)
    driven = row.family
    if kind != "abandon":
        refuse_answer(world.root, thaw(store.plan(run_id)[1], row.plan_hash, run_id), driven)
    request = store.request(run_id, kind, canon.dumps(payload), by, world.clock.wall_ms())
    deadline = time.monotonic() + _ANSWER_S
    while True:
        with suppress(LeaseHeldError):
            drive(world, driven, [], observe=lambda _events, _snap: None, settle_only=True)
        outcome = next(row.outcome for row in store.requests(run_id, open_only=False) if row.id == request)
        if outcome == "applied":
            return run_info(store.run(run_id))
        if outcome is not None:
            raise UsageError("request-refused", outcome, f"see where it stands: interlock status {run_id}")
        if time.monotonic() >= deadline:
            raise LeaseHeldError(
                "request-pending",
                f"the driver of run {run_id} has not acted on it yet; it stays asked for",
                f"look again: interlock status {run_id}",
            )
        time.sleep(_POLL_S)


def abandoned(row: RunRow) -> Result | None:
    """Return how a run that was abandoned stands; None for one that can be. Raises UsageError where neither is so."""
    refuse_child(row, "abandon")
    if row.state == RunState.COMPLETED:
        raise UsageError("run-ended", f"run {row.id} is {row.state}", "there is nothing to stop")
    return result_of(run_info(row)) if row.state == RunState.ABANDONED else None


def raising(ceilings: Mapping[str, float]) -> Opening:
    """Return what raises the ceilings before a run goes on. It raises UsageError for one that would not be raised."""

    def opening(snap: Snapshot, now: Now) -> tuple[ev.Event, ...]:
        if snap.above is not None:
            # what is raised above lifts what is below
            return ()
        if reason := unraised(snap, dict(ceilings)):
            raise UsageError("not-raised", reason, f"see what was used: interlock status {snap.run.id}")
        return raised(dict(ceilings), now)

    return opening


def amend(world: World, run_id: str, ceilings: Mapping[str, float], loops: int, by: str) -> Result:
    """Have the live driver of a run raise ceilings and grant loops."""
    asked: dict[RequestKind, dict[str, Any]] = {"raise": dict(ceilings), "loops": {"loops": loops} if loops else {}}
    for kind, payload in asked.items():
        if payload:
            ask(world, run_id, kind, payload, by)
    detail = f"run {run_id} is driven by another process, which took the change; watch it: interlock events {run_id} --follow"
    result = result_of(run_info(world.store.run(run_id)))
    return msgspec.structs.replace(result, exit_code=0, detail=detail, instead="amended")


def user() -> str:
    """Return the name of the account that asks, its number where it has none."""
    import pwd  # noqa: PLC0415 - a run needs no name

    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name
    return str(os.getuid())


def result_payload(result_json: str | None) -> dict[str, Any]:
    """Read the result that a person gives for a unit; nothing where none was given."""
    if result_json is None:
        return {}
    try:
        return {"result": canon.loads(result_json)}
    except canon.NotJsonError as error:
        raise UsageError(
            "result-not-json", f"--result is not JSON: {error}", "quote it: --result '\"text\"'"
        ) from error
