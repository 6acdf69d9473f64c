"""Turns what a worker answered, or how it died, into an outcome. Everything that leaves here is redacted."""

from __future__ import annotations

import os
import signal
from typing import Annotated, Final, Literal

import msgspec

from interlock.dispatch.base import Outcome
from interlock.dispatch.env.redact_base import Redactor, redacted_message
from interlock.model.states import Reason

_ExitCode = Annotated[int, msgspec.Meta(ge=0, le=255)]
_failure: Final = msgspec.json.Decoder(tuple[Reason, str, _ExitCode | None, bool]).decode
_UNKNOWN: Final = -1


class Ending(msgspec.Struct, frozen=True):
    """Why the driver ends an attempt; decided once, before anything is killed."""

    status: Literal["failed", "aborted"]
    reason: Reason
    text: str


def failure(redactor: Redactor, body: bytes, base: Outcome) -> Outcome:
    """The function failed, or never began, and said how. Raises what decoding raises: then it is no worker's answer."""
    reason, text, exit_code, changed = _failure(body)
    return msgspec.structs.replace(
        base,
        status="aborted" if changed else "failed",
        reason=reason,
        error=redacted_message(redactor, text),
        exit_code=exit_code,
        output=b"",
        is_json=False,
        module_changed=changed,
    )


def ended(redactor: Redactor, ending: Ending, base: Outcome) -> Outcome:
    """The driver ended it."""
    return msgspec.structs.replace(
        base, status=ending.status, reason=ending.reason, error=redacted_message(redactor, ending.text), answered=False
    )


def died(wait_status: int | None, base: Outcome) -> Outcome:
    """The worker ended without an answer."""
    code = _UNKNOWN if wait_status is None else os.waitstatus_to_exitcode(wait_status)
    if wait_status is None:
        text = "the worker process was lost"
    elif code < 0:
        text = f"the worker process was killed by {_signal_name(-code)}"
        if -code == signal.SIGKILL:
            text += "; perhaps the machine ran out of memory (see `dmesg`)"
    else:
        text = f"the worker process exited with status {code} before it answered"
    exit_code = code if code >= 0 else None
    return msgspec.structs.replace(
        base, status="failed", reason=Reason.KILLED, error=text, exit_code=exit_code, answered=False
    )


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
