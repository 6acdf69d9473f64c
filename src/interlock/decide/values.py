"""References looked up in a snapshot, and schemas: how a value is found and judged.

A lookup gives canonical JSON bytes where it can (no decode of a large artifact that is passed on whole).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from interlock.model import canon
from interlock.model.plan import Reference
from interlock.model.run import Snapshot
from interlock.model.secret import secret_texts
from interlock.model.states import StepState

_MAX_ERRORS = 3


class UnresolvedError(Exception):
    """A reference names nothing; the text says which, and what was found instead."""


def lookup(snap: Snapshot, ref: Reference) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of `ref`. Raises UnresolvedError."""
    return walk(ref, _root(snap, ref))


def lookup_json(snap: Snapshot, ref: Reference) -> bytes:
    """Return the value of `ref` as canonical JSON. Raises UnresolvedError."""
    if ref.root == "steps" and not ref.path:
        return _artifact(snap, ref)
    return canon.dumps(lookup(snap, ref))


def _artifact(snap: Snapshot, ref: Reference) -> bytes:
    step = snap.by_id[ref.name]
    if step.state is StepState.SKIPPED:
        return b"null"
    if step.state is not StepState.COMPLETED:
        raise UnresolvedError(f"{ref.text}: step '{ref.name}' is {step.state}, so it has no output")
    return step.artifact if step.artifact is not None else b"null"


def _root(snap: Snapshot, ref: Reference) -> Any:  # noqa: ANN401 - any JSON value
    if ref.root == "params":
        if ref.name not in snap.run.params:
            raise UnresolvedError(f"{ref.text}: the optional parameter '{ref.name}' was not given")
        return snap.run.params[ref.name]
    return msgspec.json.decode(_artifact(snap, ref))


def walk(ref: Reference, value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return what the reference's path leads to from `value`. Raises UnresolvedError."""
    skipped = value is None and ref.root == "steps" and bool(ref.path)
    for part in ref.path:
        if isinstance(part, int):
            found = isinstance(value, list) and -len(value) <= part < len(value)
        else:
            found = isinstance(value, dict) and part in value
        if not found:
            where = f"[{part}]" if isinstance(part, int) else f".{part}"
            hint = " (the step was skipped or gave nothing)" if skipped else ""
            raise UnresolvedError(f"{ref.text}: there is no {where} in {describe(value)}{hint}")
        value = value[part]
    return value


def describe(value: object) -> str:
    """Say what kind of JSON value this is, with its size, for a message."""
    if isinstance(value, str):
        return f"a string of {len(value)} characters"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        keys = ", ".join(sorted(map(str, value))[:5])
        return f"an object with {keys or 'no keys'}"
    if value is None:
        return "null"
    return "a boolean" if isinstance(value, bool) else "a number"


@lru_cache(maxsize=512)
def _validator(schema_json: str) -> Callable[[Any], list[str]]:
    import jsonschema_rs  # noqa: PLC0415 - heavy, and not every run has a schema

    validator = jsonschema_rs.Draft202012Validator(msgspec.json.decode(schema_json), validate_formats=True)

    def errors(value: object) -> list[str]:
        if validator.is_valid(value):
            return []
        found = []
        for error in validator.iter_errors(value):
            path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.instance_path)
            found.append(f"{path.lstrip('.') or 'value'}: {error.message}")
            if len(found) == _MAX_ERRORS:
                break
        return found

    return errors


def schema_errors(schema_json: str | None, value: object) -> list[str]:
    """Return at most three places where `value` misses the schema; empty when it fits or there is none."""
    if schema_json is None:
        return []
    return _validator(schema_json)(value)


def betrays(snap: Snapshot, text: str) -> bool:
    """Tell whether the text holds what a secret param of the run, or of one above it, holds."""
    levels = ((level.plan.params, level.run.params) for level in snap.levels)
    known = (secret for params, given in levels for secret in secret_texts((p.name for p in params if p.secret), given))
    return any(value in text or canon.dumps(value).decode()[1:-1] in text for _, value in known if value)
