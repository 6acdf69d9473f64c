"""How a process ended and what its adapter read make one outcome.

Guarantees: exit 0 is never taken for success and any other exit not for failure: the agent's own last event decides;
an attempt whose last event came has its answer, however it was ended afterwards; session, usage and notices survive
any failure; an error passed off as an answer fails.
"""

from __future__ import annotations

from typing import Final

import msgspec

from interlock.dispatch.agents.base import Answer
from interlock.dispatch.agents.disguised import disguised
from interlock.dispatch.env.redact_base import Redactor, redacted_message
from interlock.model.events import Answered
from interlock.model.outcome import Outcome
from interlock.model.states import Reason

_OWN_END: Final = frozenset({None, Reason.NON_ZERO_EXIT, Reason.KILLED})
"""It ended by itself, or somebody else ended it: what it said counts."""
_TOO_LARGE: Final = (
    "the answer is larger than {} bytes (max_result_bytes of [limits]); ask for a file and its path instead"
)


def hidden(answer: Answer, redactor: Redactor) -> Answer:
    """Redact what an adapter read: taken apart, events may say what no single one of them did."""
    return msgspec.structs.replace(
        answer,
        text=redactor.json(answer.text.encode("utf-8", "replace")).decode("utf-8", "replace"),
        structured_json=None
        if answer.structured_json is None
        else redactor.json(answer.structured_json.encode()).decode(),
        error=redacted_message(redactor, answer.error),
    )


def conclude(end: Outcome, answer: Answer, *, settled: bool, max_result_bytes: int) -> Outcome:
    """Return the attempt's outcome. `settled`: the agent's last event was seen."""
    known = _with_what_is_known(end, answer)
    if end.reason not in _OWN_END and not settled:
        return known
    if end.reason is Reason.KILLED and not settled and answer.reason in {None, Reason.LLM_BAD_RESPONSE}:
        return known
    return _as_answered(known, answer, max_result_bytes)


def _with_what_is_known(end: Outcome, answer: Answer) -> Outcome:
    return msgspec.structs.replace(
        end,
        output=b"",
        usage=answer.usage,
        answered_by=Answered(
            session=answer.session or None, model=answer.model or None, request_id=answer.request_id or None
        ),
        notices=tuple(dict.fromkeys((*answer.notices, *end.notices))),
    )


def _as_answered(known: Outcome, answer: Answer, max_result_bytes: int) -> Outcome:
    if answer.reason is not None:
        return _failed(known, answer, answer.reason, answer.error)
    # from here on the agent said how its work ended, so nothing about its effects is unknown
    told = Answer(acted=False)
    if answer.denied:
        return _failed(known, told, Reason.LLM_BAD_RESPONSE, _denied(answer.denied))
    output = (answer.text if answer.structured_json is None else answer.structured_json).encode("utf-8", "replace")
    if answer.structured_json is None and (fault := disguised(answer.text, known.ended_at)) is not None:
        given = Answer(acted=False, retry_after_ms=fault.retry_after_ms, quota_until=fault.quota_until)
        return _failed(known, given, fault.reason, f"an error was passed off as the answer: {answer.text.strip()}")
    if len(output) > max_result_bytes:
        return _failed(known, told, Reason.OUTPUT_TOO_LARGE, _TOO_LARGE.format(max_result_bytes))
    return msgspec.structs.replace(
        known,
        status="ok",
        reason=None,
        error="",
        answered=True,
        output=output,
        is_json=answer.structured_json is not None,
    )


def _failed(known: Outcome, answer: Answer, reason: Reason, error: str) -> Outcome:
    return msgspec.structs.replace(
        known,
        status="failed",
        reason=reason,
        error=error,
        answered=not answer.acted,
        retry_after_ms=answer.retry_after_ms,
        quota_until=answer.quota_until,
    )


def _denied(tools: tuple[str, ...]) -> str:
    names = ", ".join(f"`{name}`" for name in dict.fromkeys(tools))
    return f"the agent was refused tools that it asked for: {names}; allow them by the engine's `args`"
