"""The keys that a configuration file may have, table by table, and what each one's value has to be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeGuard

import msgspec
from msgspec import UNSET, UnsetType

from interlock.plan.diagnose import listed
from interlock.plan.durations import DurationError, parse_duration

SAMPLING_OF_AGENT: Final = {"claude": ("max_tokens",), "qwen": ("temperature", "max_tokens")}
"""What agents let be set of their models' sampling; the others nothing."""
APIS: Final = ("anthropic", "gemini", "openai")
IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def duration(value: object) -> int | UnsetType | None:
    """Return a duration in milliseconds, UNSET when `value` is none."""
    try:
        return parse_duration(str(value)) if type(value) in {int, str} else UNSET
    except DurationError:
        return UNSET


class Kind(msgspec.Struct, frozen=True):
    """What a key's value has to be."""

    wanted: str
    fits: Callable[[Any], bool]
    options: tuple[str, ...] = ()


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(entry, str) and "\0" not in entry for entry in value)


def is_passable(name: str) -> bool:
    """Tell whether `name` can name a variable that a child gets from `env`."""
    return bool(IDENTIFIER.fullmatch(name)) and not name.startswith("INTERLOCK_")


def _is_names(value: object) -> bool:
    return _is_texts(value) and all(map(is_passable, value))


def _whole(least: int, most: int | None = None) -> Kind:
    bounds = f"from {least}" if most is None else f"from {least} to {most:,}"
    return Kind(
        f"a whole number {bounds}",
        lambda v: type(v) is int and v >= least and (most is None or v <= most),
    )


def _choice(*words: str) -> Kind:
    return Kind(listed(words), lambda v: isinstance(v, str) and v in words, words)


TEXT: Final = Kind("text", _is_text)
TEXTS: Final = Kind("a list of strings", _is_texts)
ARGV: Final = Kind("a list of strings that names a program", lambda v: _is_texts(v) and bool(v) and bool(v[0].strip()))
NAMES: Final = Kind("a list of names of variables, none of them INTERLOCK_...", _is_names)
PROGRAM: Final = Kind("text or a list of strings that names a program", lambda v: _is_text(v) or ARGV.fits(v))
VARIABLE: Final = Kind("the name of a variable", lambda v: isinstance(v, str) and bool(IDENTIFIER.fullmatch(v)))
KEY: Final = Kind(
    "a variable's name with a '$' before it, never a value",
    lambda v: isinstance(v, str) and bool(re.fullmatch(r"\$[A-Za-z_][A-Za-z0-9_]*", v)),
)
URL: Final = Kind(
    "an http:// or https:// address without a user, a password or a query",
    lambda v: isinstance(v, str) and bool(re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", v)),
)
DURATION: Final = Kind("a duration such as '90s', '10m' or 'none'", lambda v: duration(v) is not UNSET)
TABLE: Final = Kind("a table", lambda v: isinstance(v, dict))

SECTIONS: Final = ("engines", "env", "limits", "models", "run")
RUN: Final = {
    "engine": TEXT,
    "judge": TEXT,
    "max_concurrency": _whole(1, 256),
    "journal": TEXT,
    "executor": TEXT,
    "python": PROGRAM,
    "timeout": DURATION,
    "idle_timeout": DURATION,
    "judge_clip_chars": _whole(100, 1_000_000),
}
LIMITS: Final = {
    "max_result_bytes": _whole(1, 268_435_456),
    "max_artifact_bytes": _whole(1, 268_435_456),
    "max_items": _whole(1, 100_000),
    "max_log_bytes": _whole(0),
}
_ANY_ENGINE: Final = {
    "kind": _choice("llm", "agent"),
    "model": TEXT,
    "api_key": KEY,
    "base_url": URL,
    "concurrency": _whole(1, 256),
    "reserve_tokens": _whole(0),
}
LLM: Final = _ANY_ENGINE | {"api": _choice(*APIS)}
AGENT: Final = _ANY_ENGINE | {
    "agent": TEXT,
    "args": TEXTS,
    "command": ARGV,
    "env": TEXTS,
    "output": _choice("text", "json"),
}
ENV: Final = {"vars": NAMES, "dotenv": TEXTS, "secrets": TABLE}
SECRET: Final = {"command": ARGV, "var": VARIABLE}
