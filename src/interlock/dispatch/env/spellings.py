"""How a value is spelled by programs that encode what they say: JSON, URLs and base64, as the usual writers do it.

These are the spellings that are looked for as they stand. What a writer may choose freely (which characters it escapes,
the case of hex digits, where base64 is broken into lines) is undone by `views.py` instead.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, quote_plus

# base64 characters at the front that also carry bits of the one or two unknown bytes before the value
_MIXED_FRONT: Final = (0, 2, 3)
_FOR_HTML: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def as_bytes(text: str) -> bytes:
    """Return what a child is given of a value, also where that is not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def json_forms(value: str) -> Iterator[str]:
    """Yield the value as it stands within a JSON string."""
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield text
        yield text.replace("/", "\\/")
        yield text.translate(_FOR_HTML)


def _lower_hex(text: str) -> str:
    return re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), text)


def _url_forms(value: str) -> Iterator[str]:
    # the sets of characters left alone: Python's two, and those of JavaScript's encodeURIComponent and encodeURI
    texts = [quote(value, safe=safe, errors="surrogateescape") for safe in ("", "/", "!'()*", "!'()*;/?:@&=+$,#")]
    for text in (*texts, quote_plus(value, errors="surrogateescape")):
        yield text
        yield _lower_hex(text)


def literal_forms(value: str) -> frozenset[bytes]:
    """Return the value itself, JSON-escaped and URL-encoded."""
    return frozenset(map(as_bytes, (value, *json_forms(value), *_url_forms(value))))


def cores(raw: bytes) -> tuple[bytes, ...]:
    """Return the base64 characters that `raw` alone decides, wherever in a longer encoded text it lies."""
    found = []
    for shift, front in enumerate(_MIXED_FRONT):
        whole_characters = (shift + len(raw)) * 8 // 6
        found.append(base64.b64encode(bytes(shift) + raw)[front:whole_characters])
    return tuple(found)


def line_forms(value: str, shortest: int) -> Iterator[bytes]:
    """Yield the lines of a value of several, such as a private key: programs print them one by one."""
    lines = [line.strip() for line in value.splitlines()]
    for line in lines if len(lines) > 1 else ():
        if len(line) >= shortest:
            yield from map(as_bytes, (line, *json_forms(line)))
