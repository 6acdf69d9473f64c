"""From what an LLM API said to an Outcome: bounded, redacted, logged."""

from __future__ import annotations

from typing import Final

from interlock.dispatch.attempt import Attempt, now_ms
from interlock.dispatch.base import Outcome
from interlock.dispatch.env.redact_base import Redactor, redacted_message
from interlock.dispatch.llm import Ending
from interlock.dispatch.llm.base import Failure, Reply
from interlock.dispatch.logs.log import AttemptLog, RunLog
from interlock.model.events import Answered, Usage
from interlock.model.states import Reason

_NOTICE_CHARS: Final = 400


def outcome_of(attempt: Attempt, ending: Ending, redactor: Redactor, log: RunLog) -> Outcome:
    """Put the ending into the form that every attempt ends in."""
    job = attempt.request.job
    reply, failure = ending.reply, ending.failure
    text = redactor.json(reply.text.encode("utf-8", "replace")) if reply else b""
    if failure is None and len(text) > job.max_result_bytes:
        failure = Failure(
            reason=Reason.OUTPUT_TOO_LARGE,
            error=f"the answer is larger than {job.max_result_bytes} bytes (max_result_bytes of [limits]); ask for less",
        )
    error = redacted_message(redactor, failure.error) if failure else ""
    share = _logged(attempt, text, error, log)
    aborted = reply is None and failure is None
    return Outcome(
        dispatch=attempt.request.dispatch,
        status="aborted" if aborted else "ok" if failure is None else "failed",
        reason=Reason.ABORTED if aborted else failure.reason if failure else None,
        error="cancelled" if aborted else error,
        output=text if failure is None else b"",
        answered=not aborted and (failure is None or failure.answered),
        usage=_usage(reply, ending.cost_usd) if reply else None,
        log=share.close(),
        started_at=attempt.started_at,
        ended_at=now_ms(),
        retry_after_ms=failure.retry_after_ms if failure else None,
        quota_until=failure.quota_until if failure else None,
        answered_by=_answered(reply, failure),
        notices=(*(redacted_message(redactor, text, _NOTICE_CHARS) for text in ending.notices), *share.notices),
    )


def _logged(attempt: Attempt, text: bytes, error: str, log: RunLog) -> AttemptLog:
    share = log.attempt(attempt.request.dispatch, attempt.request.job.max_log_bytes)
    if text:
        share.add("out", text)
    if error:
        share.add("err", error.encode() + b"\n")
    return share


def _usage(reply: Reply, cost_usd: float | None) -> Usage | None:
    usage = reply.usage
    if usage is None:
        return None
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=cost_usd,
        cached_tokens=usage.cached_tokens,
        reasoning_tokens=usage.reasoning_tokens,
    )


def _answered(reply: Reply | None, failure: Failure | None) -> Answered | None:
    if reply is not None:
        return Answered(model=reply.model, request_id=reply.request_id)
    if failure is not None and failure.request_id:
        return Answered(request_id=failure.request_id)
    return None
