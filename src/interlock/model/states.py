"""The life of a run, step, unit and attempt, one table each; docs and store checks are drawn from these.

`MOVES[x]` is the set of states that `x` may move to. A state without moves is terminal within a round;
`resume` reopens by the moves listed in `REOPEN`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class RunState(StrEnum):
    """State of one execution of a plan."""

    ACTIVE = "active"
    WAITING = "waiting"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    ABANDONED = "abandoned"


class StepState(StrEnum):
    """State of one entry of `steps:`."""

    PENDING = "pending"
    RUNNING = "running"
    GATING = "gating"
    WAITING = "waiting"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


class UnitState(StrEnum):
    """State of one piece of work. `unknown`: an external effect that may or may not have happened."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    UNKNOWN = "unknown"
    COMPLETED = "completed"
    FAILED = "failed"
    NOT_RUN = "not_run"


class AttemptState(StrEnum):
    """State of one dispatch. `lost`: its driver died before it could record the end."""

    RESERVED = "reserved"
    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"
    LOST = "lost"


class Reason(StrEnum):
    """Why an attempt, unit or step failed."""

    TIMEOUT = "timeout"
    IDLE_TIMEOUT = "idle_timeout"
    SPAWN_FAILED = "spawn_failed"
    NON_ZERO_EXIT = "non_zero_exit"
    KILLED = "killed"
    LOST = "lost"
    PARSE_ERROR = "parse_error"
    VALIDATION_ERROR = "validation_error"
    PROMPT_TOO_LARGE = "prompt_too_large"
    LLM_RATE_LIMIT = "llm_rate_limit"
    LLM_OVERLOADED = "llm_overloaded"
    LLM_QUOTA = "llm_quota"
    LLM_AUTH = "llm_auth"
    LLM_CONTEXT_LENGTH = "llm_context_length"
    LLM_CONTENT_FILTER = "llm_content_filter"
    LLM_BAD_RESPONSE = "llm_bad_response"
    NETWORK_ERROR = "network_error"
    ENV_UNRESOLVED = "env_unresolved"
    ISOLATION_FAILED = "isolation_failed"
    CHILD_FAILED = "child_failed"
    OUTPUT_TOO_LARGE = "output_too_large"
    DISK_FULL = "disk_full"
    DISPATCH_ERROR = "dispatch_error"
    ABORTED = "aborted"
    BUDGET_EXCEEDED = "budget_exceeded"
    JOURNAL_WRITE_FAILED = "journal_write_failed"


NOT_RETRYABLE: Final = frozenset(
    {Reason.ABORTED, Reason.BUDGET_EXCEEDED, Reason.JOURNAL_WRITE_FAILED, Reason.LOST, Reason.VALIDATION_ERROR}
)
"""Naming one of these in `retry.on` is a lint error."""

NEVER_CONTINUED: Final = frozenset({Reason.ABORTED, Reason.BUDGET_EXCEEDED, Reason.JOURNAL_WRITE_FAILED})
"""Reasons that fail the step whatever `on_error` says."""

R, S, U, A = RunState, StepState, UnitState, AttemptState

RUN_MOVES: Final[dict[RunState, frozenset[RunState]]] = {
    R.ACTIVE: frozenset({R.WAITING, R.BLOCKED, R.COMPLETED, R.FAILED, R.ABANDONED}),
    R.WAITING: frozenset({R.ACTIVE, R.ABANDONED}),
    R.BLOCKED: frozenset({R.ACTIVE, R.ABANDONED}),
    R.COMPLETED: frozenset(),
    R.FAILED: frozenset({R.ACTIVE, R.ABANDONED}),
    R.ABANDONED: frozenset({R.ACTIVE}),
}

STEP_MOVES: Final[dict[StepState, frozenset[StepState]]] = {
    S.PENDING: frozenset({S.RUNNING, S.COMPLETED, S.FAILED, S.SKIPPED}),
    S.RUNNING: frozenset({S.GATING, S.WAITING, S.BLOCKED, S.COMPLETED, S.FAILED, S.RUNNING}),
    S.GATING: frozenset({S.RUNNING, S.WAITING, S.BLOCKED, S.COMPLETED, S.FAILED}),
    S.WAITING: frozenset({S.RUNNING, S.GATING, S.FAILED}),
    S.BLOCKED: frozenset({S.RUNNING, S.GATING, S.COMPLETED, S.FAILED}),
    S.COMPLETED: frozenset(),
    S.FAILED: frozenset({S.RUNNING, S.PENDING}),
    S.SKIPPED: frozenset(),
}

UNIT_MOVES: Final[dict[UnitState, frozenset[UnitState]]] = {
    U.PENDING: frozenset({U.RUNNING, U.NOT_RUN, U.COMPLETED, U.FAILED}),
    U.RUNNING: frozenset({U.PENDING, U.WAITING, U.UNKNOWN, U.COMPLETED, U.FAILED}),
    U.WAITING: frozenset({U.RUNNING, U.FAILED, U.NOT_RUN, U.PENDING}),
    U.UNKNOWN: frozenset({U.PENDING, U.COMPLETED, U.FAILED}),
    U.COMPLETED: frozenset(),
    U.FAILED: frozenset({U.PENDING}),
    U.NOT_RUN: frozenset(),
}

ATTEMPT_MOVES: Final[dict[AttemptState, frozenset[AttemptState]]] = {
    A.RESERVED: frozenset({A.STARTED, A.COMPLETED, A.FAILED, A.ABORTED, A.LOST}),
    A.STARTED: frozenset({A.COMPLETED, A.FAILED, A.ABORTED, A.LOST}),
    A.COMPLETED: frozenset(),
    A.FAILED: frozenset(),
    A.ABORTED: frozenset(),
    A.LOST: frozenset(),
}

RUN_ENDED: Final = frozenset({R.COMPLETED, R.FAILED, R.ABANDONED})
STEP_ENDED: Final = frozenset({S.COMPLETED, S.FAILED, S.SKIPPED})
UNIT_ENDED: Final = frozenset({U.COMPLETED, U.FAILED, U.NOT_RUN})
ATTEMPT_ENDED: Final = frozenset({A.COMPLETED, A.FAILED, A.ABORTED, A.LOST})
