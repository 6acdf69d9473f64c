"""The seam to the outside world: what a worker is asked, and what it may report.

All values here are plain data that could be sent to another machine. Byte fields hold canonical JSON where
their name ends in `_json`, else raw bytes.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from interlock.dispatch.git.base import WorktreeAsk
from interlock.model.events import Process, Usage
from interlock.model.outcome import Outcome
from interlock.model.plan import Work

NEVER: Final = float("inf")
"""A monotonic time that doesn't come."""


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """An engine as configured now: where it is reached, its key's variable, limits. Never frozen, never journaled.

    Field by field what `interlock.toml` says under `[engines.NAME]`; `driver` is its `api` or `agent`.
    """

    name: str
    kind: Literal["llm", "agent"]
    driver: str
    base_url: str | None = None
    api_key: str | None = None
    """The name of the variable that holds the key."""
    concurrency: int | None = None
    args: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    output: Literal["text", "json"] = "text"


class EngineCall(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What all prompts of a job ask of their engine."""

    engine: str
    kind: Literal["llm", "agent"]
    driver: str
    model: str | None = None
    schema_json: str | None = None
    """The JSON Schema the answer must fit; an engine that cannot enforce it gets it in the prompt."""
    temperature: float | None = None
    max_tokens: int | None = None
    extra_params_json: str = "{}"


class MergePart(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One item's work in a merge."""

    index: int
    item_json: bytes
    commit: str
    ref: str
    taken_base: str | None = None
    """Where the work began, if another run did it; "" for where the merge does."""


class MergeAsk(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Units' work to bring together on `branch`, from the commit of `worktree` on; `checked` by the job's target."""

    worktree: WorktreeAsk
    branch: str
    parts: tuple[MergePart, ...]
    checked: bool
    at_s: int
    """The date of the merges, in seconds since the epoch: the same each time it is done again."""


class FrozenModule(msgspec.Struct, frozen=True, kw_only=True):
    """What the module of a Python function has to be when it is loaded: its file and the hash of what that held."""

    file: str
    """As the plan names it."""
    place: str
    """Absolute."""
    sha256: str


class Job(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What all units of one step, round and loop share; built once, never per unit.

    `key` names it uniquely among all that one driver has to do, and so does `step` the step, which is not its index
    in the plan of a child. `artifact_json` is set for a gate's check and joins the context as
    `artifact`. Timeouts are milliseconds, `None` for none.
    """

    key: str
    run_id: str
    step_id: str
    step: int
    target: Work
    shell: tuple[str, ...] = ()
    params_json: bytes = b"{}"
    inputs_json: bytes = b"{}"
    feedback_json: bytes = b"null"
    artifact_json: bytes | None = None
    env: tuple[str, ...] = ()
    python_path: tuple[str, ...] = ()
    """Folders put before the interpreter's own path, of a Python function."""
    frozen: FrozenModule | None = None
    """Of a Python function; None takes whatever module there is."""
    hidden: tuple[tuple[str, str], ...] = ()
    """Values to redact that no env group holds, with their names: params that look like secrets."""
    cwd: str = "."
    """Absolute."""
    timeout_ms: int | None = None
    idle_timeout_ms: int | None = None
    max_result_bytes: int = 1_048_576
    max_log_bytes: int = 8_388_608
    call: EngineCall | None = None
    """Of prompts and judges; `target` says nothing more then."""
    accepts_any_exit: bool = False
    """A check or probe: exit code and output are the answer, so a non-zero exit is not a failure."""
    keeps_end: bool = False
    """A check: the exit code alone decides, so of its output the end is enough, however much comes."""
    merge: MergeAsk | None = None
    """What a merge brings together; `target` is its check then."""


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
    ahead: bool = False
    """It waits in line behind the unit that the worker has, or is given back."""
    prompt: str | None = None
    """The whole text to send: prose with context attached, or a correction."""
    cold_prompt: str | None = None
    """What to send instead where `session` cannot be gone on with; None: the prompt stands by itself."""
    session: str | None = None
    """The agent session to continue in; None starts a new one."""
    session_usage: Usage | None = None
    """What earlier attempts consumed in that session, for agents that report only its total; None when unknown."""
    worktree: WorktreeAsk | None = None
    """The worktree to make for it."""
    cwd: str | None = None
    """Where it works instead of in the job's folder: in its worktree, or in a kept one."""

    @property
    def folder(self) -> str:
        """Where it works."""
        return self.cwd or self.job.cwd


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt has a process."""

    dispatch: str
    process: Process


class EnvAudit(msgspec.Struct, frozen=True, kw_only=True):
    """Env names that were resolved for a job; warnings (of what cannot be redacted) ride along."""

    step: int
    names: tuple[str, ...]
    warnings: tuple[str, ...] = ()


Report = Started | Outcome | EnvAudit

__all__ = [
    "EngineCall",
    "EngineSettings",
    "EnvAudit",
    "FrozenModule",
    "Job",
    "MergeAsk",
    "MergePart",
    "Outcome",
    "Report",
    "Request",
    "Started",
]
