"""A text that comes in pieces."""

from __future__ import annotations

from itertools import pairwise

from interlock.dispatch.env.redact import PatternRedactor


def cut(text: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in pairwise(edges)]


def streamed(redactor: PatternRedactor, pieces: list[bytes]) -> bytes:
    stream = redactor.stream()
    return b"".join([*(stream.feed(piece) for piece in pieces), stream.flush()])
