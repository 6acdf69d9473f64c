"""The one boundary where what a unit gave becomes its result: absent, a text or a JSON value, or a failure."""

from __future__ import annotations

import msgspec

from interlock.decide.extract import Miss, find_json
from interlock.decide.values import schema_errors
from interlock.model import canon
from interlock.model.states import Reason


class Result(msgspec.Struct, frozen=True):
    """Canonical JSON, or None when absent."""

    json: bytes | None


class Failure(msgspec.Struct, frozen=True):
    """Why the output is no result."""

    reason: Reason
    error: str


def extract(output: bytes, *, is_json: bool, schema_json: str | None, max_bytes: int) -> Result | Failure:
    """Turn stdout (or a function's JSON) into a result by SPEC section 2, Outputs."""
    if is_json:
        found = _json(output, schema_json, "the function's return value")
    elif schema_json is None:
        found = _text(output)
    elif not output.strip():
        return Failure(Reason.PARSE_ERROR, "stdout is empty; the step's schema asks for one JSON value")
    else:
        found = _json(output, schema_json, "stdout")
    return _bounded(found, max_bytes) if isinstance(found, Result) else found


def extract_reply(output: bytes, *, is_json: bool, schema_json: str | None, max_bytes: int) -> Result | Failure:
    """Turn an engine's reply into a result: its text, or with a schema the one JSON value that fits."""
    text = output.decode("utf-8", "replace")
    if schema_json is None:
        return _bounded(Result(canon.dumps(text) if text else None), max_bytes)
    found = find_json(text, schema_json)
    if isinstance(found, Miss):
        kind = "structured answer" if is_json else "reply"
        reason = Reason.VALIDATION_ERROR if found.misfits else Reason.PARSE_ERROR
        return Failure(reason, f"the {kind} could not be used: {found.error}")
    return _bounded(Result(found.json), max_bytes)


def _bounded(found: Result, max_bytes: int) -> Result | Failure:
    if found.json is not None and len(found.json) > max_bytes:
        limit = f"the limit is {max_bytes:,} (max_result_bytes of [limits])"
        return Failure(Reason.OUTPUT_TOO_LARGE, f"the result has {len(found.json):,} bytes; {limit}")
    return found


def _text(output: bytes) -> Result:
    text = output.decode("utf-8", "replace")
    text = text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")
    return Result(canon.dumps(text) if text else None)


def _json(output: bytes, schema_json: str | None, what: str) -> Result | Failure:
    try:
        value, raw = canon.normalise(output.strip())
    except canon.NotJsonError as error:
        return Failure(Reason.PARSE_ERROR, f"{what} is not exactly one JSON value: {error}")
    errors = schema_errors(schema_json, value)
    if errors:
        return Failure(Reason.VALIDATION_ERROR, f"{what} misses the schema: " + "; ".join(errors))
    return Result(raw if schema_json is not None or value is not None else None)
