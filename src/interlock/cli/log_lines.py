"""From frames of a log to lines of text, streams of different attempts kept apart."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from interlock.dispatch.logs.reading import Frame

_LONGEST_LINE: Final = 65_536
"""A longer line is shown in pieces, so that no line has to fit in memory."""


class Said(msgspec.Struct, frozen=True):
    """One line that an attempt wrote; undecodable bytes replaced."""

    dispatch: str
    stream: str
    at_ms: int
    text: str


class _Pending:
    def __init__(self) -> None:
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.text = ""
        self.at_ms = 0


def said(frames: Iterable[Frame]) -> Iterator[Said]:
    """Yield lines as they become whole, and what never got a line end at the last."""
    pending: dict[tuple[str, str], _Pending] = {}
    for frame in frames:
        part = pending.setdefault((frame.dispatch, frame.stream), _Pending())
        *whole, part.text = (part.text + part.decode(frame.data)).split("\n")
        part.at_ms = frame.at
        if frame.stream == "note" or len(part.text) > _LONGEST_LINE:
            whole.append(part.text)
            part.text = ""
        for text in whole:
            yield Said(frame.dispatch, frame.stream, frame.at, text)
    for (dispatch, stream), part in pending.items():
        rest = part.text + part.decode(b"", final=True)
        if rest:
            yield Said(dispatch, stream, part.at_ms, rest)
