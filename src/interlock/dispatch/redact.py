"""Keeps known values out of everything that is stored or shown.

A value is looked for raw, JSON-escaped, URL-encoded and base64-encoded (in all three alignments, with either
alphabet), and replaced by `[redacted:NAME]`; so is each line of a value that has several. Guarantees: a stream gives
the same bytes as the whole text at once, however it is cut; text without a value comes back byte for byte; JSON stays JSON. Values under MIN_LENGTH
characters would blot out ordinary text: they are no patterns, and `short_names` says which.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus

from interlock.model import canon

MIN_LENGTH: Final = 6
# base64 characters at the front that also carry bits of the one or two unknown bytes before the value
_MIXED_FRONT: Final = (0, 2, 3)


def _json_forms(value: str) -> Iterator[str]:
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield text
        yield text.replace("/", "\\/")


def _lower_hex(text: str) -> str:
    return re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), text)


def _url_forms(value: str) -> Iterator[str]:
    # the sets of characters left alone: Python's two, and those of JavaScript's encodeURIComponent and encodeURI
    texts = [quote(value, safe=safe, errors="surrogateescape") for safe in ("", "/", "!'()*", "!'()*;/?:@&=+$,#")]
    for text in (*texts, quote_plus(value, errors="surrogateescape")):
        yield text
        yield _lower_hex(text)


def _base64_cores(raw: bytes) -> Iterator[bytes]:
    """The characters that `raw` alone decides, wherever in a longer encoded text it lies."""
    for shift, front in enumerate(_MIXED_FRONT):
        whole_characters = (shift + len(raw)) * 8 // 6
        core = base64.b64encode(bytes(shift) + raw)[front:whole_characters]
        yield core
        yield core.replace(b"+", b"-").replace(b"/", b"_")


def encodings(value: str) -> frozenset[bytes]:
    """Every spelling of `value` that is looked for."""
    raw = value.encode("utf-8", "surrogateescape")
    texts = {*_json_forms(value), *_url_forms(value)}
    return frozenset({raw, *(text.encode("utf-8", "surrogateescape") for text in texts), *_base64_cores(raw)})


def _line_forms(value: str) -> Iterator[bytes]:
    """The lines of a value of several, such as a private key: programs print them one by one."""
    lines = [line.strip() for line in value.splitlines()]
    for line in lines if len(lines) > 1 else ():
        if len(line) >= MIN_LENGTH:
            yield from (form.encode("utf-8", "surrogateescape") for form in (line, *_json_forms(line)))


def _compact(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class PatternRedactor:
    """Replaces the values of `secrets` (name to value) in texts and streams."""

    def __init__(self, secrets: Mapping[str, str] | Iterable[tuple[str, str]]) -> None:
        pairs = secrets.items() if isinstance(secrets, Mapping) else secrets
        found: dict[bytes, bytes] = {}
        short: list[str] = []
        for name, value in pairs:
            if len(value) < MIN_LENGTH:
                short.append(name)
                continue
            for pattern in (*encodings(value), *_line_forms(value)):
                found.setdefault(pattern, f"[redacted:{name}]".encode())
        self.short_names: Final = tuple(short)
        self._marks: Final = found
        self._patterns: Final = sorted(found, key=len, reverse=True)
        self._shortest: Final = len(self._patterns[-1]) if self._patterns else 0
        self.longest: Final = len(self._patterns[0]) if self._patterns else 0

    def matches(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Leftmost, longest, not overlapping: start, end and replacement."""
        if not self._patterns or len(data) < self._shortest:
            return
        # one memmem per pattern is ten times faster than an alternation over all of them
        present = [pattern for pattern in self._patterns if pattern in data]
        if present:
            for match in re.finditer(b"|".join(map(re.escape, present)), data):
                yield match.start(), match.end(), self._marks[match[0]]

    def text(self, data: bytes, /) -> bytes:
        """Redact a whole text at once."""
        parts: list[bytes] = []
        done = 0
        for start, end, mark in self.matches(data):
            parts += (data[done:start], mark)
            done = end
        if not parts:
            return data
        return b"".join((*parts, data[done:]))

    def json(self, data: bytes, /) -> bytes:
        """Redact JSON text so that it stays JSON: inside of strings, and a number that holds a value becomes one."""
        if self.text(data) == data:
            return data
        try:
            clean = _compact(self._value(canon.loads(data)))
        except canon.NotJsonError:
            return self.text(data)
        if self.text(clean) == clean:
            return clean
        # a value that reads like JSON syntax: only the whole can be taken out
        return _compact(next(mark for _, _, mark in self.matches(clean)).decode())

    def _value(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, dict):
            return {self._string(key): self._value(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self._value(entry) for entry in value]
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, bool) or value is None:
            return value
        text = json.dumps(value)
        clean = self._string(text)
        return value if clean == text else clean

    def _string(self, text: str) -> str:
        return self.text(text.encode()).decode()

    def stream(self) -> PatternStream:
        """Start a stream of its own."""
        return PatternStream(self)


class PatternStream:
    """One stream: a match is final only when no longer one could begin at or before it."""

    def __init__(self, redactor: PatternRedactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, data: bytes, /) -> bytes:
        """Take the next piece and return what is safe by now, perhaps nothing."""
        longest = self._redactor.longest
        if not longest:
            return data
        self._held += data
        return self._take(len(self._held) - longest + 1)

    def flush(self) -> bytes:
        """End the stream and return what was held back."""
        return self._take(len(self._held))

    def _take(self, limit: int) -> bytes:
        if limit <= 0:
            return b""
        parts: list[bytes] = []
        done = 0
        for start, end, mark in self._redactor.matches(self._held):
            if start >= limit:
                break
            parts += (self._held[done:start], mark)
            done = end
        cut = max(done, limit)
        parts.append(self._held[done:cut])
        self._held = self._held[cut:]
        return b"".join(parts)
