"""Keeps known values out of everything that is stored or shown.

A value is looked for raw, JSON-escaped, URL-encoded and base64-encoded (in all three alignments, with either alphabet,
broken into lines or not), whatever the writer chose to escape and how, and also where two of these were done one
after the other. It is replaced by `[redacted:NAME]`; so is each line of a value that has several. Guarantees: a stream
gives the same bytes as the whole text at once, however it is cut, and holds back only what may be the start of a value;
text without a value comes back byte for byte; JSON stays JSON. Values under MIN_LENGTH characters would blot out
ordinary text: they are no patterns, and `short_names` says which.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from interlock.dispatch.env.broken import BrokenBase64
from interlock.dispatch.env.patterns import Patterns
from interlock.dispatch.env.redact_base import MIN_LENGTH
from interlock.dispatch.env.spellings import as_bytes, line_forms, literal_forms
from interlock.dispatch.env.views import View, views
from interlock.model import canon

_FARTHEST_BACK: Final = 4_096
"""Escapes that have no common border for longer are no text of any program; a stream is cut within one then."""

Span = tuple[int, int, bytes]
"""Start, end and mark."""


def _compact(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class PatternRedactor:
    """Replaces the values of `secrets` (name to value) in texts and streams."""

    def __init__(self, secrets: Mapping[str, str] | Iterable[tuple[str, str]]) -> None:
        pairs = list(dict.fromkeys(secrets.items() if isinstance(secrets, Mapping) else secrets))
        long = [(value, f"[redacted:{name}]".encode()) for name, value in pairs if len(value) >= MIN_LENGTH]
        self.short_names: Final = tuple(name for name, value in pairs if len(value) < MIN_LENGTH)
        plain = _marked(long, lambda value: (as_bytes(value),))
        lines = _marked(long, lambda value: line_forms(value, MIN_LENGTH))
        forms = _marked(long, lambda value: sorted(literal_forms(value)))
        # forms have a blank as a plus, which undoing their other escapes leaves
        spaced = _marked(long, lambda value: (as_bytes(value.replace(" ", "+")),))
        self._whole: Final = Patterns(lines | forms)
        self._undone: Final = Patterns(lines | spaced | plain)
        self._broken: Final = BrokenBase64(forms, plain)
        # another spelling of a number is none of its text
        self._numeric: Final = any(set(value) <= set("0123456789+-.eE") for value, _ in long)
        self._least: Final = min((len(raw) for raw in (*forms, *lines)), default=0)

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to look for."""
        return not self._least

    def spans(self, data: bytes) -> Iterator[Span]:
        """What of the data belongs to values: start, end and replacement; matches that overlap are one span."""
        return _merged(self.look(data, final=True)[0])

    def look(self, data: bytes, *, final: bool) -> tuple[list[Span], int]:
        """Return the matches, sorted, and up to where the data is settled whatever follows; the end if `final`."""
        found: list[Span] = []
        settled = len(data)
        seen: list[View] = []
        if final and len(data) < self._least:
            return found, settled
        for view in views(data, final=final):
            patterns = self._undone if seen else self._whole
            seen.append(view)
            text = view.text
            for matches in (patterns.matches(text), self._broken.matches(text)):
                found += [(view.start(start), view.end(end), mark) for start, end, mark in matches]
            if not final:
                at = min(patterns.pending(text), self._broken.pending(text))
                settled = min(settled, len(data) if at == len(text) else view.start(at))
                settled = settled if view.open_at is None else min(settled, view.open_at)
        found.sort(key=lambda span: (span[0], -span[1]))
        return found, settled if settled == len(data) else _border(seen, settled)

    def text(self, data: bytes, /) -> bytes:
        """Redact a whole text at once."""
        if self.is_empty:
            return data
        found = self.look(data, final=True)[0]
        return replaced(data, found, 0, len(data))[0] if found else data

    def json(self, data: bytes, /) -> bytes:
        """Redact JSON text so that it stays JSON: inside of strings, and a number that holds a value becomes one."""
        if self.is_empty:
            return data
        clean = self.text(data)
        if clean == data and not self._numeric and b"\\" not in data:
            return data
        try:
            value = canon.loads(data)
        except canon.NotJsonError:
            return clean
        hidden = self._value(value)
        if hidden == value and clean == data:
            return data
        compact = _compact(hidden)
        left = next(self.spans(compact), None)
        # a value that reads like JSON syntax: only the whole can be taken out
        return compact if left is None else _compact(left[2].decode())

    def _value(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, dict):
            return {self._string(key): self._value(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self._value(entry) for entry in value]
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, bool) or value is None:
            return value
        text = canon.dumps(value).decode()
        clean = self._string(text)
        return value if clean == text else clean

    def _string(self, text: str) -> str:
        return self.text(text.encode()).decode()

    def stream(self) -> PatternStream:
        """Start a stream of its own."""
        return PatternStream(lambda: self)


class PatternStream:
    """One stream: a match is final only when no longer one could begin at or before it.

    `current` says what is looked for by now; it may grow while the stream runs.
    """

    def __init__(self, current: Callable[[], PatternRedactor]) -> None:
        self._current = current
        self._held = b""
        self._covered = 0
        """Bytes at the front of what is held that were replaced already."""

    def feed(self, data: bytes, /) -> bytes:
        """Take the next piece and return what is safe by now, perhaps nothing."""
        redactor = self._current()
        if redactor.is_empty and not self._held:
            return data
        self._held += data
        found, settled = redactor.look(self._held, final=False)
        return self._take(found, settled)

    def flush(self) -> bytes:
        """End the stream and return what was held back."""
        return self._take(*self._current().look(self._held, final=True)) if self._held else b""

    def _take(self, found: list[Span], limit: int) -> bytes:
        text, end = replaced(self._held, found, self._covered, limit)
        self._held = self._held[limit:]
        self._covered = max(0, end - limit)
        return text


def _marked(long: Iterable[tuple[str, bytes]], spellings: Callable[[str], Iterable[bytes]]) -> dict[bytes, bytes]:
    """Return the spellings of all values with their marks; the first that is spelled so gives it."""
    found: dict[bytes, bytes] = {}
    for value, mark in long:
        for spelling in spellings(value):
            found.setdefault(spelling, mark)
    return found


def _merged(found: Iterable[Span]) -> Iterator[Span]:
    last: Span | None = None
    for start, end, mark in found:
        if last is not None and start < last[1]:
            last = (last[0], max(last[1], end), last[2])
            continue
        if last is not None:
            yield last
        last = (start, end, mark)
    if last is not None:
        yield last


def replaced(data: bytes, found: Iterable[Span], covered: int, limit: int) -> tuple[bytes, int]:
    """Replace what was found up to `limit`, where so many bytes at the front belong to a match replaced before.

    Matches that overlap are replaced as one: what sticks out of the first is of a value as well. Return the text,
    and where what was replaced ends, perhaps after `limit`.
    """
    parts: list[bytes] = []
    end = covered
    for start, stop, mark in found:
        if start >= limit:
            break
        if start >= end:
            parts += (data[end:start], mark)
        end = max(end, stop)
    parts.append(data[end:limit])
    return b"".join(parts), end


def _border(seen: list[View], at: int) -> int:
    """Return the last place up to this one that is within no escape, whichever view looks at it."""
    lowest = max(0, at - _FARTHEST_BACK)
    before = -1
    place = at
    while place != before:
        before = place
        for view in seen:
            place = view.floor(place)
        if place < lowest:
            return at
    return place
