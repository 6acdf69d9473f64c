"""A redactor for as long as a driver runs: what it looks for grows while secrets become known.

Guarantee: whatever is redacted after a secret became known is redacted of it, also in streams that began before. Costs
one comparison where nothing is known, and none of the machinery is loaded then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.dispatch.env.redact import PatternRedactor, PatternStream

Hidden = tuple[tuple[str, str], ...]
"""Names and values."""


class GrowingRedactor:
    """Knows `own`, and what is in `known`, to which others append. Safe from any thread."""

    def __init__(self, own: Hidden, known: Sequence[tuple[str, str]]) -> None:
        self._own = own
        self._known = known
        self._made: tuple[int, PatternRedactor] | None = None

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to look for yet."""
        return not (self._own or self._known)

    def current(self) -> PatternRedactor:
        """Return what looks for all that is known by now."""
        size, made = len(self._known), self._made
        if made is None or made[0] != size:
            from interlock.dispatch.env.redact import PatternRedactor  # noqa: PLC0415 - most runs have no secrets

            made = self._made = (size, PatternRedactor((*self._own, *self._known[:size])))
        return made[1]

    def text(self, data: bytes, /) -> bytes:
        """Redact a whole text at once."""
        return data if self.is_empty else self.current().text(data)

    def json(self, data: bytes, /) -> bytes:
        """Redact JSON text so that it stays JSON; what is none is redacted as text."""
        return data if self.is_empty else self.current().json(data)

    def stream(self) -> _Stream:
        """Start a stream of its own."""
        return _Stream(self)


class _Stream:
    """Hands everything through until there is something to look for."""

    def __init__(self, of: GrowingRedactor) -> None:
        self._of = of
        self._inner: PatternStream | None = None

    def feed(self, data: bytes, /) -> bytes:
        """Take the next piece and return what is safe by now, perhaps nothing."""
        if self._inner is None:
            if self._of.is_empty:
                return data
            from interlock.dispatch.env.redact import PatternStream  # noqa: PLC0415 - as above

            self._inner = PatternStream(self._of.current)
        return self._inner.feed(data)

    def flush(self) -> bytes:
        """End the stream and return what was held back."""
        return self._inner.flush() if self._inner is not None else b""
