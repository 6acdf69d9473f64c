"""The export's file: gzip'd lines of JSON, each chained to the one before by a hash, and the last one to the bytes.

A line is canonical JSON of `{data, hash, kind, n, prev}`; `hash` is the tagged SHA-256 over canonical JSON of
`{data, kind, n, prev}`, `n` counts from 1, `prev` is the hash of the line before. The last line, of kind `end`, stands
in a gzip member of its own, stored, and also holds the hash of all bytes before it. Guarantees: equal lines give equal
bytes; whatever is changed, cut, added or put elsewhere is found, and said with its line, what was expected and what
was found. Whoever can write a whole new file can make a new chain: it finds damage and edits, it is no signature.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import msgspec

from interlock.errors import StoreError, UsageError
from interlock.model import canon

FORMAT: Final = 1
HEADER: Final = "header"
END: Final = "end"
START: Final = "sha256:" + "0" * 64
"""The `prev` of the first line."""
MAX_LINE_BYTES: Final = 128 * 1024 * 1024
_MAGIC: Final = b"\x1f\x8b"
_HEAD: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""Deflated, no name, no time, no system: nothing that differs from one machine to the next."""
_FORMAT: Final = re.compile(rb'\{"data":\{"format":([0-9]{1,9}),"interlock":')
"""How every export begins, of whatever format."""
_TAIL: Final = struct.Struct("<II")
_PIECE: Final = 64 * 1024
_MOST_AT_ONCE: Final = 1024 * 1024
_LONGEST_END: Final = 60_000
_LEVEL: Final = 6


class Line(msgspec.Struct, frozen=True):
    """One verified line; `data` is JSON."""

    n: int
    kind: str
    data: bytes
    hash: str


class ExportDamagedError(StoreError):
    """The file is not what was exported."""


class _Raw(msgspec.Struct, forbid_unknown_fields=True):
    data: msgspec.Raw
    hash: str
    kind: str
    n: int
    prev: str


_decode: Final = msgspec.json.Decoder(_Raw).decode
_TEXT: Final = msgspec.json.Encoder().encode


def _spelled(data: bytes, kind: str, n: int, prev: str, own: str | None) -> bytes:
    """Canonical JSON of a line, without its own hash where that is not known yet."""
    known = b"" if own is None else b',"hash":' + _TEXT(own)
    return b'{"data":%b%b,"kind":%b,"n":%d,"prev":%b}' % (data, known, _TEXT(kind), n, _TEXT(prev))


class Sealer:
    """Writes the file, line by line."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._bytes = hashlib.sha256()
        self._crc = 0
        self._size = 0
        self.lines = 0
        self.hash = START
        self.written = 0
        self._write(_HEAD)

    def add(self, kind: str, data: Any) -> None:  # noqa: ANN401 - any JSON value
        """Append a line."""
        line = self._line(kind, data)
        self._crc = zlib.crc32(line, self._crc)
        self._size += len(line)
        self._write(self._deflate.compress(line))

    def end(self, data: dict[str, Any]) -> None:
        """Append the last line and complete the file."""
        self._write(self._deflate.flush() + _TAIL.pack(self._crc, self._size & 0xFFFFFFFF))
        last = self._line(END, {**data, "lines": self.lines + 1, "bytes": f"sha256:{self._bytes.hexdigest()}"})
        self._write(_stored(last))

    def _line(self, kind: str, data: Any) -> bytes:  # noqa: ANN401 - any JSON value
        self.lines += 1
        text = canon.dumps(data)
        own = canon.sha256(_spelled(text, kind, self.lines, self.hash, None))
        line = _spelled(text, kind, self.lines, self.hash, own) + b"\n"
        self.hash = own
        return line

    def _write(self, data: bytes) -> None:
        self._bytes.update(data)
        self.written += len(data)
        self._out.write(data)


def _stored(data: bytes) -> bytes:
    """A gzip member that holds the data as it is, so that it can be made again byte for byte."""
    length = struct.pack("<BHH", 1, len(data), len(data) ^ 0xFFFF)
    return _HEAD + length + data + _TAIL.pack(zlib.crc32(data), len(data))


class Unsealer:
    """Reads and verifies a file; `lines` is a generator that raises where the first fault is."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._bytes = hashlib.sha256()
        self._rest = b""
        self.n = 0
        self.hash = START
        self.last: dict[str, Any] = {}

    def lines(self) -> Iterator[Line]:
        """Yield every line but the last. Raises ExportDamagedError, and UsageError for what is no export."""
        held = bytearray()
        seen = 0
        for piece in self._inflated():
            held += piece
            while (at := held.find(b"\n", seen)) >= 0:
                yield self._checked(bytes(held[: at + 1]))
                del held[: at + 1]
                seen = 0
            seen = len(held)
            if seen > MAX_LINE_BYTES:
                raise self._damaged(f"a line of at most {MAX_LINE_BYTES:,} bytes", "a longer one")
        if held:
            raise self._damaged("a whole line", "a line without an end")
        self._check_end()

    def _inflated(self) -> Iterator[bytes]:
        head = self._file.read(len(_HEAD))
        if not _MAGIC.startswith(head[: len(_MAGIC)]) or not head:
            raise self._foreign()
        if head != _HEAD:
            self._refuse_head(head)
        self._bytes.update(head)
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        crc, size = 0, 0
        ended = False
        while not ended:
            piece = inflate.unconsumed_tail or self._file.read(_PIECE)
            if not piece:
                raise self._damaged("more lines", "the end of the file")
            try:
                out = inflate.decompress(piece, _MOST_AT_ONCE)
            except zlib.error as error:
                raise self._damaged("data that can be unpacked", str(error)) from None
            ended = inflate.eof
            # at the end both may hold the same rest
            left = inflate.unused_data if ended else inflate.unconsumed_tail
            self._bytes.update(piece[: len(piece) - len(left)])
            crc, size = zlib.crc32(out, crc), size + len(out)
            yield out
        self._rest = inflate.unused_data + self._file.read(_LONGEST_END + _PIECE)
        tail = _TAIL.pack(crc, size & 0xFFFFFFFF)
        if not self._rest.startswith(tail):
            raise self._damaged(f"the checksum {tail.hex()}", self._rest[: len(tail)].hex() or "the end of the file")
        self._bytes.update(tail)
        self._rest = self._rest[len(tail) :]

    def _refuse_head(self, head: bytes) -> None:
        """The file was packed by another program, or its head is damaged; if it is an export at all."""
        try:
            start = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head + self._file.read(_PIECE), _PIECE)
        except zlib.error:
            start = b""
        if start:
            self._check_format(start)
        raise self._damaged(f"the gzip head {_HEAD.hex()}", head.hex())

    def _check_format(self, start: bytes) -> None:
        """Refuse what is no export and what a newer interlock wrote, before anything else is held against it."""
        found = _FORMAT.match(start)
        if found is None:
            raise self._foreign()
        if int(found[1]) > FORMAT:
            message = f"{self._name} has the export format {int(found[1])}; this interlock reads up to {FORMAT}"
            raise StoreError("export-too-new", message, "upgrade interlock")

    def _checked(self, line: bytes) -> Line:
        """Hold a line against the chain. Whatever JSON could spell otherwise is compared byte for byte."""
        self.n += 1
        if self.n == 1:
            self._check_format(line)
        try:
            found = _decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._damaged("a line of the chain", str(error), self.n) from None
        if found.n != self.n:
            raise self._damaged(f"line {self.n}", f"the line that was number {found.n}", self.n)
        if found.prev != self.hash:
            raise self._damaged(f"prev {self.hash}", f"prev {found.prev}", self.n)
        data = bytes(found.data)
        own = canon.sha256(_spelled(data, found.kind, found.n, found.prev, None))
        if found.hash != own:
            raise self._damaged(f"hash {own} of its content", f"hash {found.hash}", self.n)
        if line != _spelled(data, found.kind, found.n, found.prev, own) + b"\n":
            raise self._damaged("canonical JSON", "another spelling of it", self.n)
        self.hash = own
        return Line(found.n, found.kind, data, own)

    def _check_end(self) -> None:
        rest = self._rest
        line = rest[len(_stored(b"")) - _TAIL.size : -_TAIL.size]
        if not line.endswith(b"\n") or rest != _stored(line[:_LONGEST_END]):
            expected = f"the last line, number {self.n + 1}, and nothing behind it"
            raise self._damaged(expected, f"{len(rest):,} other bytes" if rest else "the end of the file")
        end = self._checked(line)
        self.last = msgspec.json.decode(end.data)
        wanted = {"lines": self.n, "bytes": f"sha256:{self._bytes.hexdigest()}"}
        if end.kind != END:
            raise self._damaged("the last line", f"a line of kind '{end.kind}'", self.n)
        for key, value in wanted.items():
            if self.last.get(key) != value:
                raise self._damaged(f"{key} {value}", f"{key} {self.last.get(key)}", self.n)

    def _damaged(self, expected: str, found: str, line: int | None = None) -> ExportDamagedError:
        place = f"at line {line}" if line is not None else f"after line {self.n}"
        message = f"{self._name} is damaged {place}: expected {expected}, found {found}"
        return ExportDamagedError("export-damaged", message, "take another copy of the file, or export the run again")

    def _foreign(self) -> UsageError:
        message = f"{self._name} is not an export of interlock"
        return UsageError("not-an-export", message, "`interlock export RUN` makes one")
