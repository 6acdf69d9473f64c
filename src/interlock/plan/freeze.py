"""Plan -> canonical JSON and its tagged hash, and back. What is stored here is for ever.

Guarantees: equal plans give equal bytes; `thaw` returns a plan only when bytes, hash, format and every field
are what this version knows, else a PlanError that names the run.
"""

from __future__ import annotations

from typing import Final

import msgspec

from interlock.errors import PlanError
from interlock.model import canon
from interlock.model.plan import FORMAT, Plan, Script

MAX_STEPS: Final = 256
MAX_PLAN_BYTES: Final = 2 * 1_048_576
MAX_SCRIPTS_BYTES: Final = 32 * 1_048_576
_NEW: Final = "start a new run of the workflow: interlock run FILE"


class _Format(msgspec.Struct):
    """Just enough of a stored plan to tell which version wrote it."""

    format: int


def freeze(plan: Plan) -> tuple[bytes, str]:
    """Return the plan's canonical JSON and its hash. Raises PlanError when it is over a limit."""
    for code, message, hint in limit_faults(plan):
        raise PlanError(code, message, hint)
    data = canon.dumps(msgspec.to_builtins(plan))
    return data, canon.sha256(data)


def limit_faults(plan: Plan) -> list[tuple[str, str, str]]:
    """Return (code, message, hint) for each limit that the plan is over."""
    faults = []
    if len(plan.steps) > MAX_STEPS:
        message = f"{len(plan.steps)} steps; a workflow may have at most {MAX_STEPS}"
        faults.append(("too-many-steps", message, "fan out with 'map'"))
    steps = [step for part in plan.whole for step in part.steps]
    embedded = sum(len(step.target.content_b64) for step in steps if isinstance(step.target, Script))
    size = len(canon.dumps(msgspec.to_builtins(plan))) - embedded
    if size > MAX_PLAN_BYTES:
        message = f"the plan has {size:,} bytes without its scripts; {MAX_PLAN_BYTES:,} are allowed"
        faults.append(("plan-too-large", message, "move long commands into scripts, shorten schemas and descriptions"))
    if embedded > MAX_SCRIPTS_BYTES:
        message = f"the plan's scripts have {embedded:,} bytes; {MAX_SCRIPTS_BYTES:,} are allowed"
        faults.append(("scripts-too-large", message, "call large programs with 'run' instead of embedding them"))
    return faults


def thaw(data: bytes, expected_hash: str, run_id: str) -> Plan:
    """Return the plan of a run as it was stored. Raises PlanError."""
    if canon.sha256(data) != expected_hash:
        message = f"the stored plan of run {run_id} does not match its hash; nothing was dispatched"
        raise PlanError("plan-damaged", message, f"restore the journal from a backup, or {_NEW}")
    try:
        found = msgspec.json.decode(data, type=_Format).format
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unreadable(run_id, str(error)) from error
    if found != FORMAT:
        raise _other_format(run_id, found)
    try:
        return msgspec.json.decode(data, type=Plan)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unreadable(run_id, str(error)) from error


def _unreadable(run_id: str, why: str) -> PlanError:
    message = f"the stored plan of run {run_id} is not one that this version knows: {why}"
    return PlanError("plan-unreadable", message, f"use the version of interlock that started it, or {_NEW}")


def _other_format(run_id: str, found: int) -> PlanError:
    message = f"the plan of run {run_id} has format {found}; this version reads format {FORMAT}"
    hint = "use a newer interlock" if found > FORMAT else f"use the version of interlock that started it, or {_NEW}"
    return PlanError("plan-too-new" if found > FORMAT else "plan-too-old", message, hint)
