"""Where JSON may stand in an engine's reply: fenced blocks, and bracketed spans at the top level.

Guarantees: one pass over the text, whatever it holds; what an unclosed fence or bracket began is never given, and
so nothing inside of it either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_OPENS: Final = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_CLOSES: Final = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*$")
_OUTSIDE: Final = re.compile(r"[\[{]")
_INSIDE: Final = re.compile(r'["\[\]{}]')
_IN_STRING: Final = re.compile(r'"|\\.', re.DOTALL)


def fences(text: str) -> Iterator[str]:
    """Yield the contents of closed fenced blocks, in order."""
    return (content for _, _, content in _blocks(text.split("\n")))


def only_fence(text: str) -> Iterator[str]:
    """Yield the content of the fence that `text` is, from its first line to its last; nothing when it is not one."""
    lines = text.split("\n")
    return (content for first, last, content in _blocks(lines) if first == 0 and last == len(lines) - 1)


def _blocks(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yield first line, last line and content of each closed fence."""
    fence, first = "", 0
    for number, line in enumerate(lines):
        bare = line.removesuffix("\r")
        found = (_CLOSES if fence else _OPENS).match(bare)
        if found is None:
            continue
        if not fence:
            fence, first = found[1], number
        elif found[1].startswith(fence):
            yield first, number, "\n".join(lines[first + 1 : number])
            fence = ""


def spans(text: str) -> Iterator[str]:
    """Yield the bracketed spans at the top level, left to right, whether they are JSON or not."""
    start = depth = at = 0
    quoted = False
    while found := (_IN_STRING if quoted else _INSIDE if depth else _OUTSIDE).search(text, at):
        at = found.end()
        mark = found[0]
        if quoted or mark == '"':
            quoted = quoted != (mark == '"')
        elif mark in "[{":
            start = start if depth else found.start()
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                yield text[start:at]
