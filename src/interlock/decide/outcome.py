"""What an attempt's end means for its unit: completed, tried again, failed, or unknown.

`effects: external` is the law here: an attempt that may have begun and gave no answer is never repeated by
itself; its unit becomes `unknown`. One whose answer is of no use fails at once, since the effect took place.
A prompt whose reply holds no usable value is asked once more, with the errors.
"""

from __future__ import annotations

from typing import Final

from interlock.decide.answers import asked_fate
from interlock.decide.fate import MISSES, Fate, work_failed
from interlock.decide.output import Failure, extract, extract_reply
from interlock.decide.quota import parked
from interlock.decide.upcoming import engine_of
from interlock.model import events as ev
from interlock.model.outcome import Outcome
from interlock.model.plan import Child, Prompt
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step, Unit
from interlock.model.states import AttemptState, Reason, UnitState

ERROR_CHARS = 4_096
_NEVER_BEGAN: Final = frozenset(
    {
        Reason.SPAWN_FAILED,
        Reason.ENV_UNRESOLVED,
        Reason.PROMPT_TOO_LARGE,
        Reason.ISOLATION_FAILED,
        Reason.LLM_AUTH,
        Reason.LLM_QUOTA,
    }
)
"""Failures that cost nothing, so that unknown usage is none."""
_REFUSED: Final = frozenset({Reason.LLM_RATE_LIMIT, Reason.LLM_OVERLOADED, Reason.LLM_CONTEXT_LENGTH})
"""Failures that cost nothing where one call is one request; an agent may have made others before."""


def record(snap: Snapshot, step: Step, unit: Unit, ended: Outcome, at: int) -> list[ev.Event]:
    """Return what the end of the unit's open attempt changes; backoff counts from `at`, the loop's own time."""
    events: list[ev.Event] = [finish(snap, step, unit, ended, at)]
    engine = engine_of(snap.plan.steps[step.index], unit.kind)
    if engine is not None and ended.reason is Reason.LLM_QUOTA:
        events.append(parked(snap, engine, ended.quota_until, at))
    return events


def finish(snap: Snapshot, step: Step, unit: Unit, ended: Outcome, at: int) -> ev.AttemptFinished:
    """Return the terminal event of the unit's open attempt."""
    spec = snap.plan.steps[step.index]
    engine = engine_of(spec, unit.kind)
    if engine is not None and ended.reason is Reason.LLM_QUOTA and ended.status == "failed":
        fate = _parked(spec, unit, ended)
    elif unit.kind == "work":
        fate = _work_fate(snap, spec, unit, ended, at)
    else:
        fate = asked_fate(unit, ended, at)
    return ev.AttemptFinished(
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
        asks=unit.asks if fate.asks is None else fate.asks,
        not_before=fate.not_before,
        process=ended.process,
        usage=ended.usage if engine is None else _usage(snap, engine, unit, ended),
        engine=engine,
        answered=ended.answered_by,
        log=ended.log,
        tree=ended.tree,
        started_at=ended.started_at or None,
    )


def _usage(snap: Snapshot, engine: str, unit: Unit, ended: Outcome) -> ev.Usage | None:
    """Charge what was reserved where the engine told nothing but may have worked."""
    known = ended.usage is not None and (ended.usage.input_tokens is not None or ended.usage.output_tokens is not None)
    free = ended.reason in _NEVER_BEGAN or (ended.reason in _REFUSED and _one_request(snap, engine))
    if known or free or not unit.reserve_tokens:
        return ended.usage
    cost = None if ended.usage is None else ended.usage.cost_usd
    return ev.Usage(output_tokens=unit.reserve_tokens, cost_usd=cost, estimated=True)


def _one_request(snap: Snapshot, engine: str) -> bool:
    return any(entry.kind == "llm" for entry in snap.plan.engines if entry.name == engine)


def _parked(spec: PlanStep, unit: Unit, ended: Outcome) -> Fate:
    """A used-up quota spends no retry, no loop and no vote: the unit waits with its engine."""
    unsure = unit.kind == "work" and spec.effects == "external" and not ended.answered
    left = UnitState.UNKNOWN if unsure else UnitState.PENDING
    return Fate(attempt=AttemptState.FAILED, unit=left, reason=Reason.LLM_QUOTA, error=ended.error)


def _work_fate(snap: Snapshot, spec: PlanStep, unit: Unit, ended: Outcome, at: int) -> Fate:
    if ended.status == "ok":
        return _result_fate(snap, spec, unit, ended, at)
    external = spec.effects == "external" and not ended.answered
    if ended.status == "aborted":
        left = UnitState.UNKNOWN if external else UnitState.PENDING
        return Fate(attempt=AttemptState.ABORTED, unit=left, reason=Reason.ABORTED, error=ended.error)
    reason = ended.reason or Reason.DISPATCH_ERROR
    if ended.missed and isinstance(spec.target, Prompt) and unit.asks == 0 and spec.effects == "internal":
        return Fate(attempt=AttemptState.FAILED, unit=UnitState.PENDING, reason=reason, error=ended.error, asks=1)
    if external:
        # charged at once: if it turns out that nothing happened, the failure counts like any other
        return Fate(
            attempt=AttemptState.FAILED,
            unit=UnitState.UNKNOWN,
            reason=reason,
            error=ended.error,
            retries=unit.retries + 1,
        )
    return work_failed(spec, unit, reason, ended.error, at, ended.retry_after_ms)


def _result_fate(snap: Snapshot, spec: PlanStep, unit: Unit, ended: Outcome, at: int) -> Fate:
    prompted = isinstance(spec.target, Prompt)
    taken = extract_reply if prompted else extract
    found = taken(
        ended.output,
        is_json=ended.is_json,
        schema_json=spec.unit_schema_json,
        max_bytes=snap.plan.limits.max_result_bytes,
    )
    if not isinstance(found, Failure):
        # what a child run is short of
        short = ended.error if isinstance(spec.target, Child) else ""
        return Fate(attempt=AttemptState.COMPLETED, unit=UnitState.COMPLETED, result=found.json, error=short)
    if prompted and found.reason in MISSES and unit.asks == 0 and spec.effects == "internal":
        return Fate(attempt=AttemptState.FAILED, unit=UnitState.PENDING, reason=found.reason, error=found.error, asks=1)
    return work_failed(spec, unit, found.reason, found.error, at)
