"""Agents that are spoken to while they run, not started for each prompt: what they are asked, and by whom.

Guarantees: a `converse` that was ended leaves nothing of its prompt running; all text that it returns is redacted,
also where a value came in pieces; whatever it finds out before it fails is told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

import msgspec

from interlock.dispatch.agents.base import Answer, Ask, Card
from interlock.dispatch.agents.helpers import Helpers
from interlock.dispatch.agents.verdict import conclude, hidden
from interlock.dispatch.agents.watch import EndedError, Watch
from interlock.dispatch.attempt import Attempt, Ending, now_ms
from interlock.dispatch.base import Request
from interlock.dispatch.env.redact_base import Redactor
from interlock.dispatch.logs.log import AttemptLog
from interlock.model.events import Process
from interlock.model.outcome import Outcome
from interlock.model.states import Reason


class Talk(msgspec.Struct, frozen=True):
    """Where one prompt is carried out."""

    ask: Ask
    key: str
    """The same for each attempt of a unit that sends the same prompt: what was paid for once can be found by it."""
    env: dict[bytes, bytes]
    helpers: Helpers
    watch: Watch
    redactor: Redactor
    log: AttemptLog
    report: Callable[[Process], None]
    """Says by which process the prompt is answered, as soon as that is known."""

    def heard(self, data: bytes) -> bytes:
        """Redact and log a line that the agent said; it counts as progress."""
        self.watch.progress()
        line = self.redactor.text(data)
        self.log.add("out", line + b"\n")
        return line


class Said(msgspec.Struct, frozen=True):
    """How a conversation went."""

    answer: Answer
    process: Process | None = None
    ending: Ending | None = None
    """Why it was ended, where it was."""


class LiveAdapter(Protocol):
    """One agent that is a long-lived process. Stateless: what lives is in `Talk.helpers`."""

    @property
    def card(self) -> Card:
        """What is known of it."""
        ...

    def converse(self, talk: Talk) -> Said:
        """Have one prompt answered. Raises CannotAskError, SpawnError, OSError before anything was sent."""
        ...


def same_prompt(request: Request, ask: Ask) -> str:
    """Return what two attempts have in common that ask the same of the same: the unit, the words, the session."""
    parts = (request.idempotency_key, ask.prompt, ask.session or "", ask.model or "")
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:24]


def carry_out(live: LiveAdapter, talk: Talk, attempt: Attempt, notices: tuple[str, ...]) -> Outcome:
    """Return the outcome of one prompt."""
    attempt.started_at = attempt.started_at or now_ms()
    try:
        said = live.converse(talk)
    except EndedError as ended:
        said = Said(Answer(), ending=ended.ending)
    told = tuple(dict.fromkeys((*notices, *said.answer.notices)))
    answer = msgspec.structs.replace(hidden(said.answer, talk.redactor), notices=told)
    reason = None if said.ending is None else said.ending.reason or Reason.ABORTED
    end = Outcome(
        dispatch=attempt.request.dispatch,
        status="ok" if reason is None else "aborted" if reason is Reason.ABORTED else "failed",
        reason=reason,
        error="" if said.ending is None else said.ending.error,
        answered=reason is None,
        process=said.process,
        log=talk.log.close(),
        notices=talk.log.notices,
        started_at=attempt.started_at,
        ended_at=now_ms(),
    )
    limit = attempt.request.job.max_result_bytes
    return conclude(end, answer, settled=said.ending is None, max_result_bytes=limit)
