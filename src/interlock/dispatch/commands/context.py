"""What a command learns: its context file and the `INTERLOCK_*` variables.

What the attempts of a job share (params, inputs, feedback, most of the environment) is encoded once and only copied
per attempt. Guarantee: a value above 64 KiB, or one that a variable cannot hold, is left out of the environment and
still stands in the file.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

import msgspec

from interlock.dispatch.base import Job, Request
from interlock.dispatch.processes.markers import VARIABLE, Marker
from interlock.model import canon

MAX_VARIABLE_BYTES: Final = 65_536
_ITEM: Final = b"INTERLOCK_ITEM"
_PARAM: Final = b"INTERLOCK_PARAM_"
_NAMED: Final = "INTERLOCK_"


def _text_of(value_json: bytes) -> bytes:
    """Return a string's own text, anything else as its JSON."""
    if value_json.startswith(b'"'):
        return msgspec.json.decode(value_json, type=str).encode()
    return value_json


def _fits(value: bytes) -> bool:
    return len(value) <= MAX_VARIABLE_BYTES and b"\0" not in value


class JobContext:
    """The shared part. `environment` starts from `base` (what children inherit), then the job's `env:` values."""

    def __init__(self, job: Job, base: dict[bytes, bytes], values: dict[str, str]) -> None:
        self._head = self._shared_json(job)
        self._env = dict(base)
        self._env.update((os.fsencode(name), os.fsencode(value)) for name, value in values.items())
        self._env.update(_param_variables(job))
        self._env[b"PWD"] = os.fsencode(job.cwd)
        self._env[b"INTERLOCK_RUN_ID"] = job.run_id.encode()
        self._env[b"INTERLOCK_STEP_ID"] = job.step_id.encode()

    @staticmethod
    def _shared_json(job: Job) -> bytes:
        artifact = b"" if job.artifact_json is None else b'"artifact":' + job.artifact_json + b","
        parts = (artifact, b'"feedback":', job.feedback_json, b',"inputs":', job.inputs_json)
        return b"{" + b"".join(parts) + b',"params":' + job.params_json

    def content(self, request: Request) -> bytes:
        """Return the attempt's context file."""
        index = b"null" if request.index is None else b"%d" % request.index
        return b"".join((self._head, b',"index":', index, b',"item":', request.item_json or b"null", b"}\n"))

    def environment(self, request: Request, path: bytes, marker: Marker) -> dict[bytes, bytes]:
        """Return the attempt's whole environment."""
        env = self._env.copy()
        env[b"INTERLOCK_CONTEXT"] = path
        env[b"INTERLOCK_UNIT_ID"] = request.unit_id.encode()
        env[b"INTERLOCK_ATTEMPT"] = b"%d" % request.attempt
        env[b"INTERLOCK_IDEMPOTENCY_KEY"] = request.idempotency_key.encode()
        env[VARIABLE.encode()] = marker.value(request.dispatch).encode()
        if request.cwd is not None:
            env[b"PWD"] = os.fsencode(request.cwd)
        if request.index is not None:
            env[b"INTERLOCK_ITEM_INDEX"] = b"%d" % request.index
        if request.item_json is not None and _fits(item := _text_of(request.item_json)):
            env[_ITEM] = item
        return env


def _param_text(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return value.encode() if isinstance(value, str) else canon.dumps(value)


def _param_variables(job: Job) -> dict[bytes, bytes]:
    params: dict[str, Any] = msgspec.json.decode(job.params_json)
    texts = ((name, _param_text(value)) for name, value in params.items())
    return {_PARAM + name.upper().encode(): text for name, text in texts if _fits(text)}


def left_out(request: Request, said: str) -> str:
    """Explain a complaint about a variable that was left out: a shell only says that it is unbound."""
    if _NAMED not in said:
        return ""
    item = _text_of(request.item_json or b"null")
    names = [_ITEM.decode()] if not _fits(item) else []
    params: dict[str, Any] = msgspec.json.decode(request.job.params_json)
    names += sorted({_PARAM.decode() + name.upper() for name, value in params.items() if not _fits(_param_text(value))})
    missed = [name for name in names if re.search(rf"\b{name}\b", said)]
    if not missed:
        return ""
    named = ", ".join(missed)
    return f"; {named}: left out, for its size or a NUL in it; read it from the file that INTERLOCK_CONTEXT names"


def without_largest(env: dict[bytes, bytes]) -> dict[bytes, bytes] | None:
    """Return `env` without the largest param or item; None when there is none left to leave out."""
    ours = [name for name in env if name == _ITEM or name.startswith(_PARAM)]
    if not ours:
        return None
    largest = max(ours, key=lambda name: len(env[name]))
    return {name: value for name, value in env.items() if name != largest}
