"""A text with its escapes undone: of JSON, of URLs, and either of them once more; each place leads back to the text.

An escape is undone wherever it stands, whoever wrote it and however he spelled it. Guarantees: an escape is whole
or left alone, so that what is found covers whole escapes; one that the end of a stream may have cut is left out and
told (`open_at`); a text that is cut between escapes (`floor`) gives the same views as the whole. Linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Final

_SHORT: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f", b'"': b'"', b"\\": b"\\", b"/": b"/"}
_HEX: Final = b"[0-9A-Fa-f]"
_LOW: Final = rb"\\u[dD][c-fC-F]" + _HEX + b"{2}"
_HIGH: Final = rb"\\u[dD][89abAB]" + _HEX + b"{2}"
_JSON: Final = re.compile(rb'((?:%s%s)|\\(?:u%s{4}|["\\/bfnrt]))' % (_HIGH, _LOW, _HEX))
_JSON_OPEN: Final = re.compile(rb"(?:%s(?:\\(?:u(?:[dD](?:[c-fC-F]%s?)?)?)?)?|\\(?:u%s{0,3})?)\Z" % (_HIGH, _HEX, _HEX))
_URL: Final = re.compile(rb"(%" + _HEX + b"{2})")
_URL_OPEN: Final = re.compile(b"%" + _HEX + rb"?\Z")
_LONGEST_OPEN: Final = 12


@lru_cache(maxsize=4096)
def _unescaped(escape: bytes) -> bytes:
    if escape[1:2] != b"u":
        return _SHORT[escape[1:]]
    if len(escape) > len(b"\\u0000"):
        pair = bytes.fromhex((escape[2:6] + escape[8:]).decode())
        return pair.decode("utf-16-be").encode()
    code = chr(int.from_bytes(bytes.fromhex(escape[2:].decode())))
    # Python writes a byte that is no UTF-8 as a lone surrogate
    return code.encode("utf-8", "surrogateescape" if "\udc80" <= code <= "\udcff" else "surrogatepass")


@lru_cache(maxsize=512)
def _unquoted(escape: bytes) -> bytes:
    return bytes.fromhex(escape[1:].decode())


class View:
    """The text itself: every place leads to itself."""

    def __init__(self, text: bytes) -> None:
        self.text: Final = text
        self.open_at: int | None = None
        """Where in the text an escape begins that more of the stream may complete."""

    def start(self, at: int) -> int:
        """Return where in the text the byte at this place of the view comes from."""
        return at

    def end(self, at: int) -> int:
        """Return where in the text ends what the view holds up to this place, which is after a byte of it."""
        return at

    def floor(self, at: int) -> int:
        """Return the last place of the text up to this one that is not within an escape."""
        return at


class _Undone(View):
    """What `of` is without the escapes in `parts`, of which every second is one."""

    def __init__(self, of: View, parts: list[bytes], undo: Callable[[bytes], bytes]) -> None:
        pieces = parts.copy()
        pieces[1::2] = map(undo, parts[1::2])
        super().__init__(b"".join(pieces))
        self._of = of
        self._sizes = (parts, pieces)

    @cached_property
    def _before(self) -> list[int]:
        return [0, *accumulate(map(len, self._sizes[0]))]

    @cached_property
    def _after(self) -> list[int]:
        return [0, *accumulate(map(len, self._sizes[1]))]

    def _inner(self, at: int) -> int:
        piece = bisect_right(self._after, at) - 1
        into = 0 if piece % 2 else at - self._after[piece]
        return self._before[piece] + into

    def start(self, at: int) -> int:
        return self._of.start(self._inner(at))

    def end(self, at: int) -> int:
        piece = bisect_right(self._after, at - 1) - 1
        inner = self._before[piece + 1] if piece % 2 else self._before[piece] + at - self._after[piece]
        return self._of.end(inner)

    def floor(self, at: int) -> int:
        # ends of what is undone below are where it is undone above, or within one piece of it
        outer = self._of.floor(at)
        inner = self._of.inner_of(outer) if isinstance(self._of, _Undone) else outer
        piece = bisect_right(self._before, inner) - 1
        if piece % 2 and piece < len(self._sizes[0]) and inner > self._before[piece]:
            return self._of.start(self._before[piece])
        return outer

    def inner_of(self, at: int) -> int:
        """Return where in the view the place of the text is, which is not within an escape."""
        piece = bisect_right(self._before, at) - 1
        return self._after[piece] + (0 if piece % 2 else at - self._before[piece])


def _undone(of: View, escape: bytes, *, final: bool) -> _Undone | None:
    """Return the view with one kind of escape undone, None where it holds none."""
    if escape not in of.text:
        return None
    shapes, opened, undo = (_JSON, _JSON_OPEN, _unescaped) if escape == b"\\" else (_URL, _URL_OPEN, _unquoted)
    text, cut = of.text, None
    if not final:
        cut = _open(text, opened)
        text = text if cut is None else text[:cut]
    parts = shapes.split(text)
    if len(parts) == 1 and cut is None:
        return None
    found = _Undone(of, parts, undo)
    found.open_at = of.open_at if cut is None else of.start(cut)
    return found


def _open(text: bytes, opened: re.Pattern[bytes]) -> int | None:
    """Return where an escape begins that the end of the text may have cut."""
    base = max(0, len(text) - _LONGEST_OPEN)
    for match in re.finditer(rb"[\\%]", text[base:]):
        at = base + match.start()
        if opened.match(text, at) and (text[at : at + 1] == b"%" or _begins(text, at)):
            return at
    return None


def _begins(text: bytes, at: int) -> bool:
    """Tell whether the backslash begins an escape and is not the second half of one."""
    return (at - len(text[:at].rstrip(b"\\"))) % 2 == 0


def views(data: bytes, *, final: bool) -> Iterator[View]:
    """Yield the text, and each way to undo one or two escapes in it that makes a difference."""
    yield (whole := View(data))
    for outer in (b"\\", b"%"):
        once = _undone(whole, outer, final=final)
        if once is None:
            continue
        yield once
        for inner in (b"\\", b"%"):
            twice = _undone(once, inner, final=final)
            if twice is not None:
                yield twice
