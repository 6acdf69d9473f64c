"""What a script hands to the functions of `import interlock`, checked before anything is read or written.

Guarantee: what passes is of the type that the signature says; the error names the argument, what it has to be and
what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from interlock.errors import UsageError
from interlock.plan.diagnose import shown

_LONGEST_S: Final = 9e12
"""What is left of 2**53 milliseconds."""


class _Rule(msgspec.Struct, frozen=True):
    wanted: str
    fits: Callable[[Any], bool]
    hint: str = ""


def _is_seconds(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LONGEST_S


def _is_key(value: object) -> bool:
    # SQLite and JSON take the very type, not those that are made of it, as the members of an enum may be
    return value is None or (type(value) is str and bool(value.strip()) and _is_utf8(value))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_path(value: object) -> bool:
    return (isinstance(value, Path) or (isinstance(value, str) and bool(value.strip()))) and "\0" not in str(value)


def _is_params(value: object) -> bool:
    return value is None or (isinstance(value, Mapping) and all(isinstance(name, str) for name in value))


def _are_paths(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and all(map(_is_path, value))


_RULES: Final = {
    "path": _Rule("a path as text or pathlib.Path", _is_path),
    "paths": _Rule("paths, each as text or pathlib.Path", _are_paths, "give several as lint(a, b)"),
    "project": _Rule("a folder as text or pathlib.Path, or None", lambda value: value is None or _is_path(value)),
    "params": _Rule("a mapping of names to JSON values, or None", _is_params),
    "key": _Rule(
        "UTF-8 text that is not blank, or None", _is_key, "give plain text, or leave it out to start a new run"
    ),
    "timeout_s": _Rule("a number of seconds, or None for no limit", _is_seconds),
}


def checked(**given: object) -> None:
    """Check arguments by their names. Raises UsageError."""
    for name, value in given.items():
        rule = _RULES[name]
        if not rule.fits(value):
            wrong = _first_wrong(value) if name == "paths" else value
            raise UsageError("wrong-argument", f"{name} must be {rule.wanted}, not {_spelled(wrong)}", rule.hint)


def _first_wrong(paths: object) -> object:
    """Return the one that is no path; `lint` gathers those that it was given, and nobody gave it their tuple."""
    return next((path for path in paths if not _is_path(path)), paths) if isinstance(paths, list | tuple) else paths


def _spelled(value: object) -> str:
    """Show what is short; what is in a mapping or list may be somebody's secret."""
    kind = type(value).__name__
    return f"{shown(repr(value))} ({kind})" if isinstance(value, str | bytes | int | float | None) else f"a {kind}"
