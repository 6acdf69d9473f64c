"""What a worker tells of a unit: the value of its function as JSON, or why there is none.

A part of the worker (worker.py says what that means). Guarantees: what leaves here is UTF-8, whatever text an exception
or a value holds; a fault is told with its place in the value; an exit code is one that a process can have.
"""

from __future__ import annotations

import importlib
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

MAX_TEXT = 65_536
"""The driver shows less, once it has redacted it: what is cut here may end in a part of a secret."""
MAX_DEPTH = 64
_FOLDER = os.path.dirname(__file__)  # noqa: PTH120 - pathlib is slow to load

_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_encode_unsorted = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class Failure(Exception):  # noqa: N818 - an answer of the unit, not a fault of this program
    """The unit's answer is that it failed, or did not begin since its module has `changed`."""

    def __init__(self, reason: str, text: str, exit_code: int | None = None, *, changed: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        self.exit_code = exit_code
        self.changed = changed

    def body(self) -> bytes:
        """Return it as the driver reads it."""
        text = _as_utf8(str(self))[: 2 * MAX_TEXT]
        return json.dumps([self.reason, text, self.exit_code, self.changed]).encode()


def exit_code(error: BaseException) -> int:
    """Return the status that a process would have ended with."""
    code = error.code if isinstance(error, SystemExit) else 1
    return (type(code) is int and code & 0xFF) or 1


def text_of(error: BaseException) -> str:
    """Return name and text of an exception, within bounds."""
    name = _as_utf8(type.__getattribute__(type(error), "__name__"))
    try:
        text = str(error)
        text = _as_utf8(text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "...")
    except BaseException:  # noqa: BLE001 - an exception that cannot be printed still has a name
        text = "(its text cannot be had)"
    return f"{name}: {text}" if text else name


def _as_utf8(text: str) -> str:
    """Write lone surrogates, as in the name of a file that is no UTF-8, the way that tracebacks show them."""
    return text.encode("utf-8", "backslashreplace").decode()


def print_trace(error: BaseException) -> None:
    """Write a short traceback, without our own frames, to the unit's stderr."""
    try:
        import traceback  # noqa: PLC0415 - only failures need it

        lines = traceback.format_exception(type(error), error, _users_part(error.__traceback__), limit=-20)
        send(2, "".join(lines).encode("utf-8", "backslashreplace"))
    except BaseException:  # noqa: BLE001, S110 - out of memory or descriptors: the answer itself still says what failed
        pass


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        ours = os.path.dirname(name) == _FOLDER  # noqa: PTH120 - as above
        if not ours and name != importlib.__file__ and not name.startswith("<frozen importlib"):
            break
        trace = trace.tb_next
    return trace


def json_of(value: Any) -> bytes:  # noqa: ANN401 - whatever the function returned
    """Return a value as JSON. Raises Failure with the first part that is none."""
    try:
        try:
            return _encode(value).encode()
        except TypeError:
            # keys of several types have no order
            return _encode_unsorted(value).encode()
    except (TypeError, ValueError, RecursionError):
        text = _fault(value, "$", 0) or "it cannot be encoded"
        raise Failure("parse_error", f"the function returned what is not JSON: {text}") from None


def _fault(value: Any, place: str, depth: int) -> str | None:  # noqa: ANN401 - as above
    """Find the first part of `value` that is not JSON."""
    if depth > MAX_DEPTH:
        return f"more than {MAX_DEPTH} levels of nesting"
    if isinstance(value, dict):
        fault = next(filter(None, (_scalar_fault(key, f"a key of {place}") for key in value)), None)
        if fault:
            return fault
        parts = [(f"{place}.{key}", entry) for key, entry in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{place}[{index}]", entry) for index, entry in enumerate(value)]
    else:
        return _scalar_fault(value, place)
    return next(filter(None, (_fault(entry, where, depth + 1) for where, entry in parts)), None)


def _scalar_fault(value: Any, place: str) -> str | None:  # noqa: ANN401 - as above
    if isinstance(value, float):
        return None if value - value == 0 else f"{place} is {value}"
    if isinstance(value, str):
        return None if value.isascii() or _is_text(value) else f"{place} holds a lone surrogate"
    return None if value is None or isinstance(value, int) else f"{place} is of type {type(value).__name__}"


def _is_text(value: str) -> bool:
    try:
        return bool(value.encode())
    except UnicodeEncodeError:
        return False


def send(fd: int, data: bytes) -> None:
    """Write all of it."""
    sent = os.write(fd, data)
    while sent < len(data):
        sent += os.write(fd, memoryview(data)[sent : sent + 1_048_576])
