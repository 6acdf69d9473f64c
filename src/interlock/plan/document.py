"""Bytes of a workflow file -> its lines, front matter and body.

Guarantees: UTF-8 alone; a BOM and CRLF leave no trace, so the same workflow gives the same text on every
machine; bare CR, NUL, other encodings and oversized files are refused with their place. Line numbers of the
parts are those of the file.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Final

import msgspec

from interlock.model.workflow import Place
from interlock.plan.diagnose import Source

MAX_BYTES: Final = 1_048_576
_FENCE: Final = re.compile(r"---[ \t]*")
_REFUSED: Final = re.compile("[\r\0]")
_OTHER_BOMS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The two halves of a file. `front` keeps its line numbers: the opening fence is an empty first line."""

    source: Source
    text: str
    front: str | None
    body: str
    body_line: int
    """The file's line number of the body's first line."""


def read(data: bytes, file: str) -> Document:
    """Split `data` into front matter and body; `front` is None when it cannot be had, which was then reported."""
    text, source = _decode(data, file)
    if source.failed:
        return Document(source=source, text="", front=None, body="", body_line=1)
    end = _closing_fence(source)
    if end is None:
        return Document(source=source, text=text, front=None, body="", body_line=1)
    return Document(
        source=source,
        text=text,
        front="\n" + "".join(f"{line}\n" for line in source.lines[1:end]),
        body="\n".join(source.lines[end + 1 :]),
        body_line=end + 2,
    )


def _decode(data: bytes, file: str) -> tuple[str, Source]:
    if len(data) > MAX_BYTES:
        source = Source(file, ())
        message = f"the file has more than {MAX_BYTES:,} bytes, which is the most that a workflow may have"
        source.error(Place(1, 1), "file-too-large", message, "move scripts and data into files of their own")
        return "", source
    raw = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = raw.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        return "", not_utf8(raw, error.start, file)
    source = Source(file, text.split("\n"))
    for number, line in enumerate(source.lines, 1):
        for found in _REFUSED.finditer(line):
            _refuse(source, Place(number, found.start() + 1), found.group())
    return text, source


def not_utf8(raw: bytes, at: int, file: str, shown: Callable[[str], str] = str) -> Source:
    """Return a finding about the byte at `at`, which is no UTF-8, in a file whose lines are `shown` like that."""
    good = raw[:at].decode("utf-8").replace("\r\n", "\n")
    line = good.count("\n") + 1
    column = len(good) - (good.rfind("\n") + 1) + 1
    source = Source(file, [shown(text) for text in raw.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")])
    hint = "save the file as UTF-8"
    if raw.startswith(_OTHER_BOMS):
        hint = "the file is UTF-16; save it as UTF-8"
    source.error(Place(line, column), "not-utf8", f"not UTF-8: byte 0x{raw[at]:02x}", hint)
    return source


def _refuse(source: Source, place: Place, character: str) -> None:
    if character == "\0":
        source.error(place, "nul-character", "a NUL character", "remove it; a workflow is a text file")
    else:
        source.error(place, "bare-cr", "a bare carriage return", "end lines with LF or CRLF")


def _closing_fence(source: Source) -> int | None:
    """Return the index of the line that closes the front matter."""
    if not _FENCE.fullmatch(source.lines[0]):
        message = "the file has no front matter"
        hint = "start with a line '---', then 'steps:', then a line '---'"
        source.error(Place(1, 1), "no-front-matter", message, hint)
        return None
    for index, line in enumerate(source.lines[1:], 1):
        if _FENCE.fullmatch(line):
            return index
    source.error(Place(1, 1, 3), "open-front-matter", "the front matter is not closed", "end it with a line '---'")
    return None
