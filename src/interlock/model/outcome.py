"""The end of an attempt as a worker tells it, before anybody has decided what it means."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from interlock.model.events import Answered, LogSpan, Process, Tree, Usage
from interlock.model.states import Reason

PLACEHOLDERS: Final = "its texts are placeholders, not an answer"
"""What an attempt's error says of an answer that has the right shape and says nothing; such answers are counted."""

FEEDBACK_CHARS: Final = 4_000
"""The most that a step is told of why it did not pass."""
_CUT: Final = "[its beginning is left out]\n"


def feedback_of(output: bytes) -> str:
    """Return what a check said as feedback: its end, with a word where that is not all."""
    text = output.decode("utf-8", "replace").strip()
    return text if len(text) <= FEEDBACK_CHARS else _CUT + text[len(_CUT) - FEEDBACK_CHARS :]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The one end of an attempt. Redacted already.

    `ok`: the work ended by itself and its exit says success (or any exit where the job accepts any).
    `failed`: `reason` and `error` say why. `aborted`: it was cancelled. `answered` is False when the work may
    have taken effect without telling (timeout, killed, lost connection); True when it ended with an answer or
    surely never began. `output` is stdout (a command) or JSON text (`is_json`, a Python function).
    """

    dispatch: str
    status: Literal["ok", "failed", "aborted"]
    reason: Reason | None = None
    error: str = ""
    output: bytes = b""
    is_json: bool = False
    answered: bool = True
    missed: bool = False
    """With `parse_error` or `validation_error`: an engine answered without a usable value, and may be asked again."""
    exit_code: int | None = None
    process: Process | None = None
    usage: Usage | None = None
    log: LogSpan | None = None
    started_at: int = 0
    """Epoch ms."""
    ended_at: int = 0
    retry_after_ms: int | None = None
    quota_until: int | None = None
    """With reason `llm_quota`: epoch ms when the engine takes work again, None when unknown."""
    answered_by: Answered | None = None
    tree: Tree | None = None
    """Of an attempt that had a worktree."""
    module_changed: bool = False
    """It was aborted before it began: the module of its function is not the frozen one, as `error` says."""
    notices: tuple[str, ...] = ()
    """What the engine could not honour; said once a run."""
