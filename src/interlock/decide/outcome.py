"""What an attempt's end means for its unit: completed, tried again, failed, or unknown.

`effects: external` is the law here: an attempt that may have begun and gave no answer is never repeated by
itself; its unit becomes `unknown`.
"""

from __future__ import annotations

import msgspec

from interlock.decide import gate
from interlock.decide.output import Failure, extract
from interlock.model import canon
from interlock.model.events import AttemptFinished, Verdict
from interlock.model.outcome import Outcome
from interlock.model.plan import Retry
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step, Unit
from interlock.model.states import NOT_RETRYABLE, AttemptState, Reason, UnitState

ERROR_CHARS = 4_096


class _Fate(msgspec.Struct, frozen=True, kw_only=True):
    attempt: AttemptState
    unit: UnitState
    reason: Reason | None = None
    error: str = ""
    result: bytes | None = None
    verdict: Verdict | None = None
    retries: int | None = None
    not_before: int | None = None


def finish(snap: Snapshot, step: Step, unit: Unit, ended: Outcome, at: int) -> AttemptFinished:
    """Return the terminal event of the unit's open attempt; backoff counts from `at`, the loop's own time."""
    spec = snap.plan.steps[step.index]
    fate = _work_fate(snap, spec, unit, ended, at) if unit.kind == "work" else _asked_fate(unit, ended)
    return AttemptFinished(
        at=ended.ended_at,
        step=step.index,
        unit=unit.ordinal,
        number=unit.attempt,
        dispatch=unit.dispatch or "",
        state=fate.attempt,
        unit_state=fate.unit,
        reason=fate.reason,
        error=fate.error[:ERROR_CHARS],
        result=fate.result,
        exit_code=ended.exit_code,
        verdict=fate.verdict,
        retries=unit.retries if fate.retries is None else fate.retries,
        not_before=fate.not_before,
        process=ended.process,
        usage=ended.usage,
        log=ended.log,
        started_at=ended.started_at or None,
    )


def _work_fate(snap: Snapshot, spec: PlanStep, unit: Unit, ended: Outcome, at: int) -> _Fate:
    if ended.status == "ok":
        found = extract(
            ended.output,
            is_json=ended.is_json,
            schema_json=spec.unit_schema_json,
            max_bytes=snap.plan.limits.max_result_bytes,
        )
        if isinstance(found, Failure):
            return _failed(spec, unit, found.reason, found.error, at)
        return _Fate(attempt=AttemptState.COMPLETED, unit=UnitState.COMPLETED, result=found.json)
    external = spec.effects == "external" and not ended.answered
    if ended.status == "aborted":
        left = UnitState.UNKNOWN if external else UnitState.PENDING
        return _Fate(attempt=AttemptState.ABORTED, unit=left, reason=Reason.ABORTED, error=ended.error)
    reason = ended.reason or Reason.DISPATCH_ERROR
    if external:
        return _Fate(attempt=AttemptState.FAILED, unit=UnitState.UNKNOWN, reason=reason, error=ended.error)
    return _failed(spec, unit, reason, ended.error, at, ended.retry_after_ms)


def _failed(
    spec: PlanStep, unit: Unit, reason: Reason, error: str, at: int, retry_after_ms: int | None = None
) -> _Fate:
    if not may_retry(spec.retry, reason, unit.retries):
        return _Fate(attempt=AttemptState.FAILED, unit=UnitState.FAILED, reason=reason, error=error)
    delay = retry_after_ms if retry_after_ms is not None else backoff_ms(spec.retry, unit.retries + 1)
    return _Fate(
        attempt=AttemptState.FAILED,
        unit=UnitState.WAITING,
        reason=reason,
        error=error,
        retries=unit.retries + 1,
        not_before=at + delay,
    )


def may_retry(retry: Retry, reason: Reason, spent: int) -> bool:
    """Tell whether a failure of that reason may be tried again. No `on` means any retryable reason."""
    if spent >= retry.max or reason in NOT_RETRYABLE:
        return False
    return not retry.on or reason in retry.on


def backoff_ms(retry: Retry, number: int) -> int:
    """Return the delay before retry `number` (from 1), in milliseconds."""
    backoff = retry.backoff
    try:
        return int(min(backoff.initial_ms * backoff.factor ** (number - 1), backoff.max_ms))
    except OverflowError:
        return backoff.max_ms


def _asked_fate(unit: Unit, ended: Outcome) -> _Fate:
    """Judge a gate's or probe's end: an answer completes the unit, anything else fails or reopens it."""
    if ended.status == "aborted":
        return _Fate(attempt=AttemptState.ABORTED, unit=UnitState.PENDING, reason=Reason.ABORTED)
    if ended.status == "failed":
        reason = ended.reason or Reason.DISPATCH_ERROR
        return _Fate(attempt=AttemptState.FAILED, unit=UnitState.FAILED, reason=reason, error=ended.error)
    verdict = gate.verdict_of(ended.exit_code)
    if verdict is None or (unit.kind == "probe" and ended.exit_code not in (0, 1)):
        text = f"exit code {ended.exit_code}: " + ended.output.decode("utf-8", "replace").strip()
        return _Fate(attempt=AttemptState.FAILED, unit=UnitState.FAILED, reason=Reason.SPAWN_FAILED, error=text)
    if unit.kind == "probe":
        result = canon.dumps({"verdict": verdict, "output": ended.output.decode("utf-8", "replace")})
    else:
        result = gate.answer_json(verdict, ended.output)
    return _Fate(attempt=AttemptState.COMPLETED, unit=UnitState.COMPLETED, verdict=verdict, result=result)
