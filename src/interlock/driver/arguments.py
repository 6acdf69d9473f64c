"""What a script hands to the functions of `import interlock` and the verbs of App, checked before anything is read or written.

Guarantee: what passes is of the type that the signature says; the error names the argument, what it has to be and
what it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeVar

import msgspec

from interlock.driver.params import ParamsInput
from interlock.errors import UsageError
from interlock.model.plan import Budget
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


def _or_none(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or fits(value)


_RULES: Final = {
    "path": _Rule("a path as text or pathlib.Path", _is_path),
    "paths": _Rule("paths, each as text or pathlib.Path", _are_paths, "give several as lint(a, b)"),
    "project": _Rule("a folder as text or pathlib.Path, or None", _or_none(_is_path)),
    "workflow": _Rule("a path as text or pathlib.Path, or None", _or_none(_is_path)),
    "params": _Rule("a mapping of names to JSON values, or None", _is_params),
    "key": _Rule(
        "UTF-8 text that is not blank, or None", _is_key, "give plain text, or leave it out to start a new run"
    ),
    "timeout_s": _Rule("a number of seconds, or None for no limit", _is_seconds),
}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_texts(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and all(map(_is_text, value))


def _are_ceilings(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        name in Budget.__struct_fields__ and limit is not None and _is_seconds(limit) for name, limit in value.items()
    )


_TEXT: Final = _Rule("text", _is_text, "`App.find` gives the id of a run")
_SWITCH: Final = _Rule("True or False", lambda value: isinstance(value, bool))
_CALLED: Final = _Rule("a function, or None", _or_none(callable))
_OF_VERBS: Final = {
    **_RULES,
    "text": _TEXT,
    "run_id": _TEXT,
    "unit_id": _Rule("the id of a unit", _is_text),
    "target": _Rule("the id of a step or gate as text, or None", _or_none(_is_text)),
    "preview.target": _Rule("a workflow file or the id of a run", lambda value: isinstance(value, str | Path)),
    "order": _Rule("a ForkOrder", lambda value: type(value).__name__ == "ForkOrder"),
    "params": _Rule(
        "a mapping of names to JSON values, or a ParamsInput",
        lambda value: isinstance(value, ParamsInput) or _is_params(value),
    ),
    "if_running": _Rule("'fail', 'skip' or None", lambda value: value in ("fail", "skip", None)),
    "on_event": _CALLED,
    "on_warning": _CALLED,
    "wait": _SWITCH,
    "accept_changes": _SWITCH,
    "done": _SWITCH,
    "override": _SWITCH,
    "dry_run": _SWITCH,
    "raises": _Rule(f"a mapping of ceilings to numbers ({', '.join(Budget.__struct_fields__)})", _are_ceilings),
    "loops": _Rule("a number of loops", _is_count),
    "older_than_ms": _Rule("a whole number of milliseconds", lambda value: type(value) is int),
    "note": _Rule("UTF-8 text", lambda value: isinstance(value, str) and _is_utf8(value)),
    "result_json": _Rule("JSON as text, or None", _or_none(_is_text), "json.dumps(result) makes it"),
    "faults": _Rule("a list of texts", _are_texts),
}
_Kind = TypeVar("_Kind")


def checking(kind: type[_Kind]) -> type[_Kind]:
    """Have each verb of a class check its arguments by their names first."""
    for name, verb in list(vars(kind).items()):
        if isinstance(verb, FunctionType) and not name.startswith("_"):
            setattr(kind, name, _checked_first(verb))
    return kind


def _checked_first(verb: FunctionType) -> Callable[..., Any]:
    code = verb.__code__
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    rules = {name: _OF_VERBS.get(f"{verb.__name__}.{name}") or _OF_VERBS[name] for name in names if name in _OF_VERBS}

    @functools.wraps(verb)
    def call(self: object, *args: object, **named: object) -> Any:  # noqa: ANN401 - what the verb returns
        _check(rules, {**dict(zip(names, args, strict=False)), **named})
        return verb(self, *args, **named)

    return call


def checked(**given: object) -> None:
    """Check arguments by their names. Raises UsageError."""
    _check(_RULES, given)


def _check(rules: Mapping[str, _Rule], given: Mapping[str, object]) -> None:
    for name, value in given.items():
        rule = rules.get(name)
        if rule is not None and not rule.fits(value):
            wrong = _first_wrong(value) if name == "paths" else value
            raise UsageError("wrong-argument", f"{name} must be {rule.wanted}, not {_spelled(wrong)}", rule.hint)


def _first_wrong(paths: object) -> object:
    """Return the one that is no path; `lint` gathers those that it was given, and nobody gave it their tuple."""
    return next((path for path in paths if not _is_path(path)), paths) if isinstance(paths, list | tuple) else paths


def _spelled(value: object) -> str:
    """Show what is short; what is in a mapping or list may be somebody's secret."""
    kind = type(value).__name__
    return f"{shown(repr(value))} ({kind})" if isinstance(value, str | bytes | int | float | None) else f"a {kind}"
