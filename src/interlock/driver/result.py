"""What a run came to, for whoever asked: state, outcome, exit code."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from interlock.driver.loop import Stop
from interlock.errors import LeaseHeldError
from interlock.model.run import RunInfo
from interlock.model.states import RUN_ENDED, RunState
from interlock.store.held import AlreadyRunningError

OK: Final = 0
FAILED: Final = 1
REJECTED: Final = 3
PERSON: Final = 4
DEGRADED: Final = 6
TRY_LATER: Final = 75
INTERRUPTED: Final = 130

_GATE_REASONS: Final = frozenset({"gate_rejected", "check_unavailable", "judge_unavailable"})


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one drive. `exit_code` is the command line's; `outcome` is None while the run can go on."""

    run_id: str
    state: str
    outcome: str | None
    exit_code: int
    reason: str | None = None
    detail: str = ""
    instead: Literal["amended", "skipped"] | None = None
    """What was done in the place of driving the run, which another process drives."""


def result_of(run: RunInfo, stop: Stop | None = None) -> Result:
    """Sum up a run's row, and why its driver stopped, if it did before the run ended."""
    interrupted = stop is Stop.INTERRUPT and run.state not in RUN_ENDED
    return Result(
        run_id=run.id,
        state=run.state,
        outcome=run.outcome,
        exit_code=INTERRUPTED if interrupted else exit_code(run),
        reason=run.reason,
        detail=run.detail,
    )


def not_twice(error: AlreadyRunningError, run: RunInfo, if_running: str | None) -> Result:
    """Answer who must not start a second run beside one under way: skipped, or LeaseHeldError."""
    if if_running == "skip":
        told = f"skipped: run {run.id} is under way"
        return msgspec.structs.replace(result_of(run), exit_code=OK, detail=told, instead="skipped")
    raise LeaseHeldError(error.code, error.message, error.hint)


def exit_code(run: RunInfo) -> int:
    """Return SPEC section 9's exit code for a run as it stands."""
    match run.state:
        case RunState.COMPLETED:
            return DEGRADED if run.outcome == "degraded" else OK
        case RunState.BLOCKED:
            return REJECTED if run.reason in _GATE_REASONS else PERSON
        case RunState.WAITING:
            return TRY_LATER
        case RunState.ACTIVE:
            return INTERRUPTED
        case RunState.FAILED | RunState.ABANDONED:
            return FAILED
