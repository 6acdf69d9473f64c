"""What redaction and a resolved environment look like to whoever runs work.

The bodies live elsewhere (`redact.py`, `secrets.py`); this file is the seam, so that the command runner and the
Python pool need neither. Guarantee of every `Redactor`: what it returns holds no value it knows, and text without
such a value comes back byte for byte.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from interlock.errors import InterlockError
from interlock.model.states import Reason

MIN_LENGTH: Final = 6
"""A shorter value, in characters, is no usable pattern."""
UNREDACTED_CHARS: Final = 65_536
"""So much of a message from outside is kept until it is redacted: what is cut before may end in a part of a value."""
_SHOWN_CHARS: Final = 4_096


class StreamRedactor(Protocol):
    """Redacts one stream piece by piece; what could be the start of a value is held back until it is known."""

    def feed(self, data: bytes, /) -> bytes:
        """Take the next piece and return what is safe by now, perhaps nothing."""
        ...

    def flush(self) -> bytes:
        """End the stream and return what was held back."""
        ...


class Redactor(Protocol):
    """Replaces known values in bytes."""

    def stream(self) -> StreamRedactor:
        """Start a stream of its own."""
        ...

    def text(self, data: bytes, /) -> bytes:
        """Redact a whole text at once."""
        ...

    def json(self, data: bytes, /) -> bytes:
        """Redact what may be read as JSON: also what its strings and numbers hold, so that it stays JSON."""
        ...


class NullRedactor:
    """For work without secrets: hands everything through, and is its own stream since it holds nothing."""

    def stream(self) -> NullRedactor:
        """Return itself."""
        return self

    def feed(self, data: bytes, /) -> bytes:
        """Return `data`."""
        return data

    def flush(self) -> bytes:
        """Return nothing: nothing is ever held back."""
        return b""

    def text(self, data: bytes, /) -> bytes:
        """Return `data`."""
        return data

    def json(self, data: bytes, /) -> bytes:
        """Return `data`."""
        return data


def redacted_message(redactor: Redactor, text: str, most: int = _SHOWN_CHARS) -> str:
    """Redact a message from outside, and bound what is left of it to so many characters."""
    clean = redactor.text(text.encode("utf-8", "replace")).decode("utf-8", "replace")
    return clean if len(clean) <= most else clean[:most] + "..."


class ResolvedEnv(msgspec.Struct, frozen=True):
    """What a job's `env:` entries came to. `names` are for the audit, `warnings` for a person; neither holds a value."""

    values: dict[str, str]
    redactor: Redactor
    names: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class EnvUnresolvedError(InterlockError):
    """A variable, file or secret that a job's `env:` names cannot be had; nothing was started."""

    reason: Reason | None = Reason.ENV_UNRESOLVED
    """What the attempt ends with; None for a cancel."""


class EnvStoppedError(EnvUnresolvedError):
    """Nobody waits for the secret any more: the run stops."""

    reason = None
