"""Copying a run's log so that every frame keeps its place, with values masked out that must not be shown.

Guarantees: what lies at an offset lies there in the copy, so spans stay true; a masked frame is as long as it was and
its checksum holds; a copy reads like the original, its damage included.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from interlock.dispatch.logs.reading import Frame, LogDamagedError, TornError, next_frame

Mask = Callable[[bytes], bytes]
"""From bytes to as many bytes."""
_PIECE: Final = 64 * 1024


def log_pieces(path: Path, mask: Mask | None) -> Iterator[tuple[int, bytes]]:
    """Yield the log's pieces with their offsets, as far as it goes now; a log that does not exist has none."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        end = file.seek(0, 2)
        start, piece = 0, b""
        for raw in _parts(file, end, mask):
            piece += raw
            if len(piece) >= _PIECE:
                yield start, piece
                start, piece = start + len(piece), b""
        if piece:
            yield start, piece


def _parts(file: BinaryIO, end: int, mask: Mask | None) -> Iterator[bytes]:
    """Frames and what stands between them; then what no frame could be made of."""
    offset = 0
    while offset < end:
        try:
            frame, after = next_frame(file, offset)
        except (TornError, LogDamagedError):
            break
        if after > end:
            break
        file.seek(offset)
        raw = file.read(after - offset)
        yield raw if mask is None else _masked(raw, frame, mask)
        offset = after
    file.seek(offset)
    if mask is not None:
        # at once: a value may lie across the border of two pieces
        yield mask(file.read(end - offset))
        return
    while offset < end and (raw := file.read(min(_PIECE, end - offset))):
        offset += len(raw)
        yield raw


def _masked(raw: bytes, frame: Frame | None, mask: Mask) -> bytes:
    if frame is None:
        return mask(raw)
    clean = mask(frame.data)
    if clean == frame.data:
        return raw
    head = raw[: len(raw) - len(frame.data) - 1]
    name = head[len(b'{"d":') : head.rindex(b',"s":')]
    first = next(i for i, (old, new) in enumerate(zip(frame.data, clean, strict=True)) if old != new)
    # a checksum of more digits takes its room from what is masked; one of fewer leaves blanks
    for less in range(len(clean)):
        data = clean[:first] + clean[first + less :]
        values = (name, frame.stream.encode(), len(data), zlib.crc32(data), frame.at)
        line = b'{"d":%b,"s":"%b","n":%d,"c":%d,"t":%d' % values
        room = len(raw) - len(data) - 1 - len(line) - len(b"}\n")
        if room >= 0:
            return line + b" " * room + b"}\n" + data + b"\n"
    return b"\n" * len(raw)
