"""What becomes of a unit whose attempt failed: retried after a delay, or failed for good."""

from __future__ import annotations

from typing import Final

import msgspec

from interlock.model.events import Verdict
from interlock.model.plan import Retry
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Unit
from interlock.model.states import NOT_RETRYABLE, AttemptState, Reason, UnitState

MISSES: Final = frozenset({Reason.PARSE_ERROR, Reason.VALIDATION_ERROR})
"""What the one corrective re-ask is for."""


_NO_USE: Final = MISSES | {Reason.OUTPUT_TOO_LARGE}


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of an attempt and its unit. `asks` and `retries` are None where nothing of that kind was spent."""

    attempt: AttemptState
    unit: UnitState
    reason: Reason | None = None
    error: str = ""
    result: bytes | None = None
    verdict: Verdict | None = None
    retries: int | None = None
    not_before: int | None = None
    asks: int | None = None


def work_failed(
    spec: PlanStep, unit: Unit, reason: Reason, error: str, at: int, retry_after_ms: int | None = None
) -> Fate:
    """Return the fate of work that failed with an answer."""
    retry = Retry() if took_effect(spec, reason) else spec.retry
    return failed(retry, unit, reason, error, at, retry_after_ms)


def failed(retry: Retry, unit: Unit, reason: Reason, error: str, at: int, retry_after_ms: int | None = None) -> Fate:
    """Return the fate of a failure that has an answer: tried again while `retry` allows, else final."""
    if not may_retry(retry, reason, unit.retries):
        return Fate(attempt=AttemptState.FAILED, unit=UnitState.FAILED, reason=reason, error=error)
    delay = retry_after_ms if retry_after_ms is not None else backoff_ms(retry, unit.retries + 1)
    return Fate(
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


def took_effect(spec: PlanStep, reason: Reason) -> bool:
    """Tell whether an external effect took place although its unit failed: the work ended well, its result is no use.

    Such a unit is tried again only when a person says so.
    """
    return spec.effects == "external" and reason in _NO_USE


def backoff_ms(retry: Retry, number: int) -> int:
    """Return the delay before retry `number` (from 1), in milliseconds."""
    backoff = retry.backoff
    try:
        return int(min(backoff.initial_ms * backoff.factor ** (number - 1), backoff.max_ms))
    except OverflowError:
        return backoff.max_ms
