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

    def spans(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """What of the data belongs to values: start, end and replacement; matches that overlap are one span."""
        found: tuple[int, int, bytes] | None = None
        for start, end, mark in self._matches(data):
            if found is not None and start < found[1]:
                found = (found[0], max(found[1], end), found[2])
                continue
            if found is not None:
                yield found
            found = (start, end, mark)
        if found is not None:
            yield found

    def _matches(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """The longest match at each place where one begins, overlapping ones too: start, end and replacement."""
        if not self._patterns or len(data) < self._shortest:
            return
        # one memmem per pattern is ten times faster than an alternation over all of them
        present = [pattern for pattern in self._patterns if pattern in data]
        if present:
            for match in re.finditer(b"(?=(" + b"|".join(map(re.escape, present)) + b"))", data):
                yield match.start(), match.end(1), self._marks[match[1]]

    def text(self, data: bytes, /) -> bytes:
        """Redact a whole text at once."""
        return self.redacted(data, 0, len(data))[0]

    def redacted(self, data: bytes, covered: int, limit: int) -> tuple[bytes, int]:
        """Redact up to `limit`, where so many bytes at the front belong to a match that was replaced before.

        Matches that overlap are replaced as one: what sticks out of the first is of a value as well. Return the text,
        and where what was replaced ends, perhaps after `limit`.
        """
        parts: list[bytes] = []
        end = covered
        for start, stop, mark in self._matches(data):
            if start >= limit:
                break
            if start >= end:
                parts += (data[end:start], mark)
            end = max(end, stop)
        parts.append(data[end:limit])
        return b"".join(parts), end

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
        return _compact(next(mark for _, _, mark in self.spans(clean)).decode())

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
        self._covered = 0
        """Bytes at the front of what is held that were replaced already."""

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
        text, end = self._redactor.redacted(self._held, self._covered, limit)
        self._held = self._held[limit:]
        self._covered = max(0, end - limit)
        return text
