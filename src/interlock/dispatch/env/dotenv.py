r"""Reads dotenv files, strictly: a line is an assignment, a comment or blank, anything else is an error with its place.

`KEY=value`, `export KEY=value`; values bare (a ` #` starts a comment), in single quotes (taken as they are) or in
double quotes (`\n \r \t \" \\ \$` are escapes); quoted values may span lines. Nothing is interpolated: a `$` is
a dollar sign, so that no value depends on where it is read.
"""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*")
_QUOTED: Final = {'"': re.compile(r'((?:[^"\\]|\\.)*)"', re.DOTALL), "'": re.compile(r"([^']*)'")}
_REST: Final = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$", "\n": ""}


class DotenvError(ValueError):
    """A line that cannot be read. The message holds its place, never its content."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line


def parse(text: str) -> dict[str, str]:
    """Return the assignments in order; a later one of the same name wins. Raises DotenvError."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        blank = _REST.match(text, at)
        if blank:
            at = blank.end()
            continue
        name = _NAME.match(text, at)
        if not name:
            raise DotenvError(_line(text, at), "expected NAME=value, a comment or a blank line")
        found[name[1]], at = _value(text, name.end())
    return found


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _value(text: str, at: int) -> tuple[str, int]:
    quote = text[at : at + 1]
    if quote not in _QUOTED:
        end = text.find("\n", at)
        raw = text[at:] if end < 0 else text[at:end]
        value = "" if raw.startswith("#") else re.split(r"[ \t]#", raw, maxsplit=1)[0].rstrip(" \t")
        if "\0" in value:
            raise DotenvError(_line(text, at), "a NUL byte cannot stand in a variable")
        return value, at + len(raw) + 1
    return _quoted(text, at, quote)


def _quoted(text: str, at: int, quote: str) -> tuple[str, int]:
    body = _QUOTED[quote].match(text, at + 1)
    if not body:
        raise DotenvError(_line(text, at), f"the {quote} that opens the value is never closed")
    rest = _REST.match(text, body.end())
    if not rest:
        raise DotenvError(_line(text, body.end()), "only a comment may follow a quoted value")
    value = body[1]
    if quote == '"':
        value = _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[0]), value)
    if "\0" in value:
        raise DotenvError(_line(text, at), "a NUL byte cannot stand in a variable")
    return value, rest.end()
