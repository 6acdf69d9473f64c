"""The seam to the outside world: what a worker is asked, and what it may report.

All values here are plain data that could be sent to another machine. Byte fields hold canonical JSON where
their name ends in `_json`, else raw bytes.
"""

from __future__ import annotations

import msgspec

from interlock.model.events import Process
from interlock.model.outcome import Outcome
from interlock.model.plan import Target


class Job(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What all units of one step, round and loop share; built once, never per unit.

    `key` names it uniquely within the run. `artifact_json` is set for a gate's check and joins the context as
    `artifact`. Timeouts are milliseconds, `None` for none.
    """

    key: str
    run_id: str
    step_id: str
    step: int
    target: Target
    shell: tuple[str, ...] = ()
    params_json: bytes = b"{}"
    inputs_json: bytes = b"{}"
    feedback_json: bytes = b"null"
    artifact_json: bytes | None = None
    env: tuple[str, ...] = ()
    cwd: str = "."
    """Absolute."""
    timeout_ms: int | None = None
    idle_timeout_ms: int | None = None
    max_result_bytes: int = 1_048_576
    max_log_bytes: int = 8_388_608
    accepts_any_exit: bool = False
    """A check or probe: exit code and output are the answer, so a non-zero exit is not a failure."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to carry out. `item_json` and `index` are None for a solo step."""

    job: Job
    dispatch: str
    unit_id: str
    attempt: int
    idempotency_key: str
    item_json: bytes | None = None
    index: int | None = None
    process: Process | None = None
    """The warm worker that capacity() offered for it."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt has a process."""

    dispatch: str
    process: Process


class EnvAudit(msgspec.Struct, frozen=True, kw_only=True):
    """Env names that were resolved for a job; warnings (values too short to redact) ride along."""

    step: int
    names: tuple[str, ...]
    warnings: tuple[str, ...] = ()


Report = Started | Outcome | EnvAudit

__all__ = ["EnvAudit", "Job", "Outcome", "Report", "Request", "Started"]
