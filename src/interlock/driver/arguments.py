"""What callers from Python hand over, checked before anything is read or written: a wrong type is told in words.

Guarantee: what passes is of the type that the signature says; the error names the argument, what it has to be and
what it was.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from interlock.driver.params import ParamsInput
from interlock.errors import UsageError
from interlock.plan.diagnose import shown

_Class = TypeVar("_Class", bound=type[Any])
_LONGEST_S: Final = 9e12
"""What is left of 2**53 milliseconds."""


class _Rule(msgspec.Struct, frozen=True):
    wanted: str
    fits: Callable[[Any], bool]
    hint: str = ""


def _is_number(value: object, least: float, most: float = math.inf) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _is_key(value: object) -> bool:
    return value is None or (isinstance(value, str) and bool(value.strip()))


def _is_params(value: object) -> bool:
    return value is None or (isinstance(value, Mapping) and all(isinstance(name, str) for name in value))


def _are(kind: type | tuple[type, ...]) -> Callable[[object], bool]:
    def fits(value: object) -> bool:
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str | bytes)
            and all(isinstance(v, kind) for v in value)
        )

    return fits


def _is_ceilings(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(n, str) and _is_number(v, 0) for n, v in value.items())


_TEXT: Final = _Rule("text", lambda value: isinstance(value, str))
_TEXT_OR_NONE: Final = _Rule("text or None", lambda value: value is None or isinstance(value, str))
_FLAG: Final = _Rule("True or False", lambda value: isinstance(value, bool))
_WHOLE: Final = _Rule("a whole number of at least 0", lambda value: type(value) is int and value >= 0)
_CALL: Final = _Rule("a function or None", lambda value: value is None or callable(value))
_RULES: Final = {
    "timeout_s": _Rule(
        "a number of seconds, or None for no limit", lambda value: value is None or _is_number(value, 0, _LONGEST_S)
    ),
    "key": _Rule("text that is not blank, or None", _is_key, "leave it out to start a new run"),
    "if_running": _Rule("'fail', 'skip' or None", lambda value: value in (None, "fail", "skip")),
    "path": _Rule("a pathlib.Path", lambda value: isinstance(value, Path)),
    "paths": _Rule("a list of pathlib.Path", _are(Path)),
    "workflow": _Rule("a pathlib.Path or None", lambda value: value is None or isinstance(value, Path)),
    "target": _Rule("text, a pathlib.Path or None", lambda value: value is None or isinstance(value, str | Path)),
    "params": _Rule("a ParamsInput", lambda value: value is None or isinstance(value, ParamsInput)),
    "run_id": _TEXT,
    "unit_id": _TEXT,
    "text": _TEXT,
    "note": _TEXT,
    "result_json": _TEXT_OR_NONE,
    "faults": _Rule("a list of texts", _are(str)),
    "raises": _Rule("a mapping of ceilings to numbers", _is_ceilings),
    "loops": _WHOLE,
    "older_than_ms": _Rule("a whole number", lambda value: type(value) is int),
    "wait": _FLAG,
    "done": _FLAG,
    "override": _FLAG,
    "accept_changes": _FLAG,
    "dry_run": _FLAG,
    "on_event": _CALL,
    "on_warning": _CALL,
}
"""By the names that arguments of `App` have; one name means one thing in all its verbs."""
_OF_API: Final = {
    **_RULES,
    "path": _Rule("a path as text or pathlib.Path", lambda value: isinstance(value, str | Path)),
    "paths": _Rule("paths, each as text or pathlib.Path", _are((str, Path)), "give several as lint(a, b)"),
    "project": _Rule("a folder as text or pathlib.Path, or None", lambda v: v is None or isinstance(v, str | Path)),
    "params": _Rule("a mapping of names to JSON values, or None", _is_params),
}


def checked(**given: object) -> None:
    """Check arguments of the functions of the Python API. Raises UsageError."""
    for name, value in given.items():
        _check(name, value, _OF_API[name])


def checks_arguments(kind: _Class) -> _Class:
    """Make every verb of a class check its arguments first. For a class decorator."""
    for name, verb in list(vars(kind).items()):
        if callable(verb) and not name.startswith("_"):
            setattr(kind, name, _checking(verb))
    return kind


def _checking(verb: Callable[..., Any]) -> Callable[..., Any]:
    code = verb.__code__
    positional = code.co_varnames[1 : code.co_argcount]

    @functools.wraps(verb)
    def call(self: object, *args: object, **named: object) -> Any:  # noqa: ANN401 - what the verb returns
        for name, value in (*zip(positional, args, strict=False), *named.items()):
            if name in _RULES:
                _check(name, value, _RULES[name])
        return verb(self, *args, **named)

    return call


def _check(name: str, value: object, rule: _Rule) -> None:
    if not rule.fits(value):
        raise UsageError("wrong-argument", f"{name} must be {rule.wanted}, not {_spelled(value)}", rule.hint)


def _spelled(value: object) -> str:
    """Show what is short; what is in a mapping or list may be somebody's secret."""
    kind = type(value).__name__
    return f"{shown(repr(value))} ({kind})" if isinstance(value, str | bytes | int | float | None) else f"a {kind}"
