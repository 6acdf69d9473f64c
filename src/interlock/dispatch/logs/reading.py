"""Reads a run's log back, frame by frame, perhaps while it is being written.

Guarantee: a frame is given only if its checksum holds. What a crash cut short - at the end of the file, or right
before the place where the next driver opened it - is dropped; any other damage is a `LogDamagedError` with its place.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

import msgspec

from interlock.dispatch.logs.log import OPEN_MARK, Stream
from interlock.errors import StoreError
from interlock.model.events import LogSpan

_MAX_HEAD_BYTES: Final = 4_096
_POLL_S: Final = 0.1
_STREAMS: Final = frozenset({"out", "err", "note"})


class LogDamagedError(StoreError):
    """The log holds bytes that no driver wrote there."""


class Frame(msgspec.Struct, frozen=True):
    """One piece of an attempt's output. `at` is epoch ms; a `note` is interlock's own word about the attempt."""

    dispatch: str
    stream: Stream
    at: int
    data: bytes


class _Head(msgspec.Struct, frozen=True):
    s: str
    d: str
    n: int
    c: int
    t: int


_decode_head: Final = msgspec.json.Decoder(_Head).decode


class TornError(Exception):
    """The frame is not whole, or not yet: the file ends before it does."""


def read_log(
    path: Path,
    spans: Collection[LogSpan] | None = None,
    dispatches: Collection[str] | None = None,
    *,
    go_on: Callable[[], bool] | None = None,
) -> Iterator[Frame]:
    """Yield frames in order: all, or those within `spans` (an attempt's frames lie in its span) and of `dispatches`.

    With `go_on` the end of the file is not the end: wait for more as long as it says so, and for the file. A log that does
    not exist is empty. Raises LogDamagedError.
    """
    while not path.exists() and go_on is not None and go_on():
        time.sleep(_POLL_S)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for start, end in [(0, None)] if spans is None else _ranges(spans):
            for frame in _frames(file, start, end, go_on):
                if dispatches is None or frame.dispatch in dispatches:
                    yield frame


def _ranges(spans: Collection[LogSpan]) -> list[tuple[int, int | None]]:
    """Return the spans in order, those that overlap made one, so that no frame comes twice."""
    merged: list[tuple[int, int | None]] = []
    reached = -1
    for start, end in sorted((span.offset, span.offset + span.length) for span in spans):
        if merged and start <= reached:
            start = merged.pop()[0]  # noqa: PLW2901 - the range grows to the left
        reached = max(reached, end)
        merged.append((start, reached))
    return merged


def _frames(file: BinaryIO, offset: int, end: int | None, go_on: Callable[[], bool] | None) -> Iterator[Frame]:
    last_look = go_on is None
    while end is None or offset < end:
        try:
            frame, offset = next_frame(file, offset)
        except TornError:
            if last_look:
                return
            # once more after a "no": something may have been written before it was said
            last_look = go_on is not None and not go_on()
            if not last_look:
                time.sleep(_POLL_S)
            continue
        if frame is not None:
            yield frame


def next_frame(file: BinaryIO, offset: int) -> tuple[Frame | None, int]:
    """Return the frame at `offset` (None: nothing of an attempt's) and where the next one starts."""
    file.seek(offset)
    line = file.readline(_MAX_HEAD_BYTES)
    if line == b"\n":
        return None, offset + 1
    after_line = offset + len(line)
    if not line.endswith(b"\n") and len(line) < _MAX_HEAD_BYTES:
        raise TornError
    try:
        head = _decode_head(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None, _reopened(file, offset, after_line)
    body = file.read(head.n + 1)
    after = after_line + head.n + 1
    if len(body) == head.n + 1 and body.endswith(b"\n") and zlib.crc32(body[:-1]) == head.c:
        known = head.s in _STREAMS
        return (Frame(head.d, cast("Stream", head.s), head.t, body[:-1]) if known else None), after
    if len(body) < head.n + 1 and OPEN_MARK not in body:
        raise TornError
    return None, _reopened(file, offset, after)


def _reopened(file: BinaryIO, offset: int, claimed_end: int) -> int:
    """Return where the next driver opened the log right after a crash cut the frame at `offset` short."""
    file.seek(offset)
    claimed = file.read(claimed_end - offset + len(OPEN_MARK))
    at = claimed.find(OPEN_MARK)
    if at < 0:
        raise LogDamagedError(
            "log-damaged",
            f"the log {file.name} is damaged at byte {offset}",
            "the journal does not depend on it; move the file away to go on without the old output",
        )
    return offset + at + 1
