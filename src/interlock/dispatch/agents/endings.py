"""Answers that are failures, worded the same for every CLI."""

from __future__ import annotations

import msgspec

from interlock.dispatch.agents.base import Answer, Reply
from interlock.dispatch.agents.faults import fault_of
from interlock.model.events import Usage
from interlock.model.states import Reason

_SAID_CHARS = 1_000


def failed(reply: Reply, text: str, status: int | None = None, *, acted: bool = True, **known: object) -> Answer:
    """Return the failure that an error text reports; one that says nothing known is `llm_bad_response`."""
    fault = fault_of(text, reply.now_ms, status)
    answer = Answer(
        reason=fault.reason if fault else Reason.LLM_BAD_RESPONSE,
        error=text or "the agent reported a failure without saying why",
        retry_after_ms=fault.retry_after_ms if fault else None,
        quota_until=fault.quota_until if fault else None,
        acted=acted,
    )
    return msgspec.structs.replace(answer, **known)


def unfinished(
    reply: Reply, last_event: str, *, acted: bool, session: str | None = None, usage: Usage | None = None
) -> Answer:
    """Return the failure of a CLI that ended without its last event, by what it said on stderr."""
    said = reply.err.decode("utf-8", "replace").strip()[-_SAID_CHARS:]
    code = "" if reply.exit_code is None else f" (exit code {reply.exit_code})"
    fault = fault_of(said, reply.now_ms) if said else None
    return Answer(
        reason=fault.reason if fault else Reason.LLM_BAD_RESPONSE,
        error=f"the agent ended without its last event, `{last_event}`{code}" + (f": {said}" if said else ""),
        retry_after_ms=fault.retry_after_ms if fault else None,
        quota_until=fault.quota_until if fault else None,
        acted=acted,
        session=session,
        usage=usage,
    )
