"""What a check, a judge or a probe answered. Whatever is no clear answer is a failure of the asked unit, never a pass."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from interlock.decide import gate
from interlock.decide.extract import Miss, find_json
from interlock.decide.fate import Fate, failed
from interlock.model import canon
from interlock.model.events import Verdict
from interlock.model.outcome import FEEDBACK_CHARS, Outcome
from interlock.model.plan import Retry
from interlock.model.run import Unit
from interlock.model.states import AttemptState, Reason, UnitState

JUDGE_SCHEMA: Final = canon.dumps(
    {
        "type": "object",
        "properties": {
            "complete": {"type": "boolean"},
            "missing": {"type": "array", "items": {"type": "string"}},
            "feedback": {"type": "string"},
        },
        "required": ["complete", "missing", "feedback"],
        "additionalProperties": False,
    }
).decode()
"""What a judge is asked for."""
_READABLE: Final = canon.dumps(
    {
        "type": "object",
        "properties": {
            "complete": {"type": "boolean"},
            "missing": {"type": "array", "items": {"type": "string"}},
            "feedback": {"type": "string"},
        },
        "required": ["complete"],
    }
).decode()
"""What is accepted as a judge's answer."""
_JUDGE_RETRY: Final = Retry(max=3, on=(Reason.LLM_RATE_LIMIT, Reason.LLM_OVERLOADED))


def asked_fate(unit: Unit, ended: Outcome, at: int) -> Fate:
    """Return what the end of a check's, judge's, probe's or merge's attempt means."""
    if ended.status == "aborted":
        return Fate(attempt=AttemptState.ABORTED, unit=UnitState.PENDING, reason=Reason.ABORTED)
    if ended.status == "failed":
        reason = ended.reason or Reason.DISPATCH_ERROR
        if unit.kind == "judge" and ended.missed and unit.asks == 0:
            return Fate(attempt=AttemptState.FAILED, unit=UnitState.PENDING, reason=reason, error=ended.error, asks=1)
        if unit.kind == "judge":
            return failed(_JUDGE_RETRY, unit, reason, ended.error, at, ended.retry_after_ms)
        return Fate(attempt=AttemptState.FAILED, unit=UnitState.FAILED, reason=reason, error=ended.error)
    if unit.kind == "merge":
        return Fate(attempt=AttemptState.COMPLETED, unit=UnitState.COMPLETED, result=canon.normalise(ended.output)[1])
    return _judge_fate(unit, ended) if unit.kind == "judge" else _exit_fate(unit, ended)


def _exit_fate(unit: Unit, ended: Outcome) -> Fate:
    code = ended.exit_code
    verdict = gate.verdict_of(code)
    if verdict is None:
        return _no_answer(Reason.SPAWN_FAILED, "no exit code" if code is None else f"exit code {code}", ended)
    if unit.kind == "probe" and code not in (0, 1):
        # it ran, and knows no more than we do
        return _no_answer(Reason.NON_ZERO_EXIT, f"exit code {code}, where 0 says done and 1 not done", ended)
    if unit.kind == "probe":
        result = canon.dumps({"verdict": verdict, "output": ended.output.decode("utf-8", "replace")})
    else:
        result = gate.answer_json(verdict, ended.output)
    return Fate(attempt=AttemptState.COMPLETED, unit=UnitState.COMPLETED, verdict=verdict, result=result)


def _no_answer(reason: Reason, what: str, ended: Outcome) -> Fate:
    said = ended.output.decode("utf-8", "replace").strip()
    text = f"{what}: {said}" if said else what
    return Fate(attempt=AttemptState.FAILED, unit=UnitState.FAILED, reason=reason, error=text)


def _judge_fate(unit: Unit, ended: Outcome) -> Fate:
    # a verdict that a judge quotes from the work it read is not its own
    found = find_json(ended.output.decode("utf-8", "replace"), _READABLE, alone=True)
    if isinstance(found, Miss):
        again = unit.asks == 0
        return Fate(
            attempt=AttemptState.FAILED,
            unit=UnitState.PENDING if again else UnitState.FAILED,
            reason=Reason.PARSE_ERROR,
            error=f"the judge has to answer with one JSON object and nothing else: {found.error}",
            asks=unit.asks + again,
        )
    answer: dict[str, Any] = msgspec.json.decode(found.json)
    verdict: Verdict = "pass" if answer["complete"] is True else "reject"
    kept = {
        "complete": answer["complete"],
        "feedback": answer.get("feedback", "")[:FEEDBACK_CHARS],
        "missing": answer.get("missing", []),
        "verdict": verdict,
    }
    return Fate(attempt=AttemptState.COMPLETED, unit=UnitState.COMPLETED, verdict=verdict, result=canon.dumps(kept))
