"""Finds values in base64 that is broken into lines, and in base64 of such base64.

Blanks and line ends within base64 count for nothing, and one alphabet for the other. Guarantees: the same is found in a
text and in any longer one around it; what the end of a stream may have cut is told; work is linear in the text, since
how much white space a match may hold is bounded, and base64 is decoded only around what looks like a value.
"""

from __future__ import annotations

import binascii
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from interlock.dispatch.env.patterns import Patterns
from interlock.dispatch.env.spellings import cores

_BLANKS: Final = b" \t\r\n"
_ONE_ALPHABET: Final = bytes.maketrans(b"-_", b"+/")
_OTHER_ALPHABET: Final = bytes.maketrans(b"+/", b"-_")
_INK: Final = re.compile(rb"[^ \t\r\n]+")
_RUN: Final = re.compile(rb"[A-Za-z0-9+/]*")
_LINE: Final = 48
"""Base64 within base64 is looked for in lines of at least so many characters."""


def _squeezed(text: bytes) -> bytes:
    return text.translate(_ONE_ALPHABET, _BLANKS)


class _Places:
    """Where in a text the bytes that are no blanks are."""

    def __init__(self, text: bytes) -> None:
        runs = [match.span() for match in _INK.finditer(text)]
        self._starts = [start for start, _ in runs]
        self._before = [0, *accumulate(end - start for start, end in runs)]

    def __getitem__(self, at: int) -> int:
        run = bisect_right(self._before, at) - 1
        return self._starts[run] + at - self._before[run]


class BrokenBase64:
    """Looks for values (the bytes that are encoded, with their marks)."""

    def __init__(self, once: Mapping[bytes, bytes], twice: Mapping[bytes, bytes]) -> None:
        self._once: Final = Patterns(_encoded(once))
        inner = _encoded(twice)
        self._inner: Final = Patterns(inner)
        self._anchors: Final = Patterns({core: b"" for piece in _pieces(inner) for core in cores(piece)})
        self._inner_most: Final = self._inner.longest + self._inner.longest // 16 + 16
        self._twice_most: Final = self._inner_most * 8 // 6 + 4
        self._widest: Final = (2 * self._once.longest + 64, 2 * self._twice_most + 64)
        """How many bytes a match may have, blanks and all."""

    def matches(self, text: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yield start, end and mark of what is found."""
        if len(text) < self._once.shortest:
            return
        packed = _squeezed(text)
        found = [(*match, self._widest[0]) for match in self._once.matches(packed)]
        found += [(*match, self._widest[1]) for match in self._within(packed)]
        places = _Places(text) if found else None
        for start, end, mark, widest in found:
            if places is not None and places[end - 1] + 1 - places[start] <= widest:
                yield places[start], places[end - 1] + 1, mark

    def _within(self, packed: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Find base64 of base64: where pieces of it are, the text around them is decoded, once for those that are near."""
        pieces = sorted((start, end) for start, end, _ in self._anchors.matches(packed))
        at = 0
        while at < len(pieces):
            first = at
            base, reach = self._around(packed, *pieces[first])
            while at < len(pieces) and pieces[at][0] < reach:
                reach = _run_end(packed, reach, pieces[at][1] + self._twice_most)
                at += 1
            starts = [start for start, _ in pieces[first:at]]
            # the least end of those that begin no earlier
            ends = [*accumulate((end for _, end in reversed(pieces[first:at])), min)][::-1]
            for start, end, mark in self._decoded(packed[base:reach]):
                # what has no piece of its own here would be found or not by how the stream is cut
                inside = bisect_left(starts, base + start)
                if inside < len(starts) and ends[inside] <= base + end:
                    yield base + start, base + end, mark

    def _around(self, packed: bytes, start: int, end: int) -> tuple[int, int]:
        """Return how far a match that holds the piece may reach in either direction."""
        before = packed[max(0, start - self._twice_most) : start][::-1]
        return start - _run_end(before, 0, len(before)), _run_end(packed, end, end + self._twice_most)

    def _decoded(self, run: bytes) -> Iterator[tuple[int, int, bytes]]:
        for phase in range(4):
            text = _decode(run, phase)
            found = [*self._inner.matches(_squeezed(text))]
            if not found:
                continue
            places = _Places(text)
            for start, end, mark in found:
                first, last = places[start], places[end - 1] + 1
                if last - first <= self._inner_most:
                    yield _character(first, phase), -_character(-last, -phase), mark

    def pending(self, text: bytes) -> int:
        """Return where at the end of the text a match may have begun; its length if nowhere."""
        return min(self._pending_once(text), self._pending_twice(text))

    def _pending_once(self, text: bytes) -> int:
        base = max(0, len(text) - self._widest[0] + 1)
        packed = _squeezed(text[base:])
        at = self._once.pending(packed)
        return len(text) if at == len(packed) else base + _Places(text[base:])[at]

    def _pending_twice(self, text: bytes) -> int:
        if not self._inner.longest:
            return len(text)
        base = max(0, len(text) - self._widest[1] + 1)
        packed = _squeezed(text[base:])
        size = _run_end(packed[::-1], 0, self._twice_most)
        if not size:
            return len(text)
        # of the last character the first bits of a value may be known
        at = size - 1
        for phase in range(4):
            decoded = _decode(packed[len(packed) - size :], phase)
            tail = max(0, len(decoded) - self._inner_most)
            inner = _squeezed(decoded[tail:])
            begun = self._inner.pending(inner)
            if begun < len(inner):
                at = min(at, _character(tail + _Places(decoded[tail:])[begun], phase))
        return base + _Places(text[base:])[len(packed) - size + at]


def _run_end(packed: bytes, start: int, most: int) -> int:
    """Return where the base64 ends that begins at `start`, looked at up to `most`."""
    run = _RUN.match(packed, start, most)
    return run.end() if run else start


def _encoded(marks: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for raw, mark in marks.items():
        for core in cores(raw):
            found.setdefault(core, mark)
    return found


def _decode(run: bytes, phase: int) -> bytes:
    """Return the bytes that the characters decide whole, where the first is so far into a group of four."""
    whole = (phase + len(run)) * 6 // 8
    return binascii.a2b_base64(b"A" * phase + run + b"A" * (-(phase + len(run)) % 4))[phase:whole]


def _character(at: int, phase: int) -> int:
    """Return which character the byte begins in."""
    return (at + phase) * 8 // 6 - phase


def _pieces(inner: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Two pieces of each, in either alphabet: a break in lines of at least `_LINE` leaves one of them whole."""
    for core in inner:
        for head in {core[:_LINE], core[:_LINE].translate(_OTHER_ALPHABET)}:
            yield head[: len(head) // 2]
            yield head[len(head) // 2 :]
