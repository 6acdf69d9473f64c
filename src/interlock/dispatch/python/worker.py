"""What a worker process of `python:` units does: take a unit, call its function, send the answer.

Loaded by path (zygote.py) under the project's own interpreter, any Python from 3.8 on and without interlock,
so it uses the standard library only. Frames are a kind byte, a little-endian length and JSON; answers also tell how
long the unit took. Units that were sent ahead wait in a socket of their own, a message each, which begins with how many
units were sent by the plain way before it. Guarantees: one unit at a time, in the order in which they were sent; whatever a function returns, raises or exits with becomes one answer, sent before the next unit is taken; none
that waits ahead is begun after a failure, or while output of the one before has not been read, until the driver says
so or sends another by the plain way; the worker ends when its socket closes.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import marshal
import os
import select
import struct
import sys
import termios
from time import perf_counter_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import TracebackType
    from typing import Any

    Nest = tuple[Any, "list[tuple[Any, Nest]]"]
    """A list or dict, and the lists and dicts in it by their places."""

HEAD = struct.Struct("<BI")
ANSWER = struct.Struct("<BII")
"""Kind, length, microseconds that the unit took."""
BEFORE = struct.Struct("<I")
JOB, UNIT, FORGET, GO_ON, RESULT, SPOKE, FAILURE = b"JUCGRSF"
"""SPOKE is a result of a unit whose output lies unread; after it and FAILURE nothing is taken that waits ahead."""
MAX_US = 0xFFFFFFFF
COPY_LIMIT = 262_144
"""Shared values up to this size are fresh for each unit; larger ones are handed out as they are, not to be changed."""
COPY_EACH = 32
"""Up to so many lists and dicts they are copied one by one."""
MAX_TEXT = 2_000
MAX_DEPTH = 64
CHUNK = 65_536

_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_decode = json.JSONDecoder().decode
_encode_unsorted = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class Failure(Exception):  # noqa: N818 - an answer of the unit, not a fault of this program
    """The unit's answer is that it failed."""

    def __init__(self, reason: str, text: str, exit_code: int | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.exit_code = exit_code


class Job:
    """What the units of one job share."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.module: str = data["module"]
        self.function: str = data["function"]
        self.cwd: str = data["cwd"]
        self.env: dict[str, str] = data["env"]
        self.marker: list[str] = data["marker"]
        self.run_id: str = data["run_id"]
        self.step_id: str = data["step_id"]
        self.max_result_bytes: int = data["max_result_bytes"]
        shared = {name: data[name] for name in ("params", "inputs", "feedback")}
        self.context: Callable[[], dict[str, Any]] = _copier(shared)
        """Returns `params`, `inputs` and `feedback` in a new dict."""
        self._call: Callable[[dict[str, Any]], Any] | None = None

    def call(self) -> Callable[[dict[str, Any]], Any]:
        """Return the function, imported at first need."""
        if self._call is None:
            self._call = self._load()
        return self._call

    def _load(self) -> Callable[[dict[str, Any]], Any]:
        name = f"python:{self.module}:{self.function}"
        importlib.invalidate_caches()
        try:
            found: Any = importlib.import_module(self.module)
        except BaseException as error:  # noqa: BLE001 - whatever a module raises or exits with is the unit's answer
            _print_trace(error)
            places = ", ".join(path or "." for path in sys.path)
            text = f"{name}: module {self.module!r} cannot be imported by {sys.executable}: {_text(error)}"
            raise Failure("spawn_failed", f"{text}; looked in {places}") from None
        for part in self.function.split("."):
            found = getattr(found, part, None)
        if callable(found):
            function: Callable[[dict[str, Any]], Any] = found
            return function
        where = getattr(sys.modules[self.module], "__file__", None) or "its package"
        raise Failure("spawn_failed", f"{name}: {where} has no function {self.function!r}") from None


class Worker:
    """Carries out units that come over `fd`, or wait in `ahead`, one at a time."""

    def __init__(self, fd: int, ahead: int) -> None:
        self.fd = fd
        self.ahead = ahead
        self.held = False
        self.plain = 0
        self.taken: bytes | None = None
        self.pid = os.getpid()
        self.poll = select.poll()
        self.poll.register(fd, select.POLLIN)
        self.poll.register(ahead, select.POLLIN)
        self.jobs: dict[int, Job] = {}
        self.entered: Job | None = None
        self.outside: dict[str, str | None] = {}

    def serve(self) -> None:
        """Answer until the socket closes."""
        for kind, body in _frames(self.fd, self.take_ahead):
            if kind == UNIT:
                self.plain += 1
                self.answer(_decode(body.decode()))
            elif kind == JOB:
                data = _decode(body.decode())
                self.jobs[data["number"]] = Job(data)
            elif kind == GO_ON:
                self.held = False
            else:
                self.jobs.clear()

    def take_ahead(self) -> None:
        """Carry out what waits ahead; return when there is something else to read before it."""
        while not self.held:
            message = self.taken or self.next_ahead()
            if not message or BEFORE.unpack_from(message)[0] != self.plain:
                self.taken = message
                return
            self.taken = None
            self.answer(_decode(message[BEFORE.size :].decode()))

    def next_ahead(self) -> bytes | None:
        """Wait for the next message; None when there is something else to read first."""
        while not any(fd == self.fd for fd, _ in self.poll.poll()):
            with contextlib.suppress(BlockingIOError):
                return os.read(self.ahead, CHUNK)
        return None

    def answer(self, unit: list[Any]) -> None:
        """Run one unit and send its answer."""
        job = self.jobs[unit[0]]
        began = perf_counter_ns()
        try:
            kind, body = RESULT, self.result(job, unit)
        except Failure as failure:
            text = [failure.reason, str(failure)[: 2 * MAX_TEXT], failure.exit_code]
            kind, body = FAILURE, json.dumps(text).encode()
        if os.getpid() != self.pid:
            # the function forked and its child came back here: only the worker itself answers
            os._exit(0)
        took_us = max(0, min(MAX_US, (perf_counter_ns() - began) // 1_000))
        flush()
        if kind == RESULT and (_unread(1) or _unread(2)):
            kind = SPOKE
        self.held = kind != RESULT
        _send(self.fd, ANSWER.pack(kind, len(body), took_us) + body)

    def result(self, job: Job, unit: list[Any]) -> bytes:
        """Return the function's value as JSON. Raises Failure."""
        self.enter(job, unit)
        call = job.call()
        context = job.context()
        _, _, context["unit_id"], context["attempt"], context["idempotency_key"], context["index"], context["item"] = (
            unit
        )
        context["run_id"] = job.run_id
        context["step_id"] = job.step_id
        try:
            value = call(context)
            if hasattr(value, "__await__"):
                value = _run(value)
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt end a unit, not its worker
            _print_trace(error)
            raise Failure("non_zero_exit", _text(error), _exit_code(error)) from None
        body = _json(value)
        if len(body) > job.max_result_bytes:
            text = "the function returned %d bytes of JSON; the limit is %d (max_result_bytes of [limits])"
            text %= len(body), job.max_result_bytes
            raise Failure("output_too_large", text)
        return body

    def enter(self, job: Job, unit: list[Any]) -> None:
        """Set environment and working directory."""
        environ = os.environ
        if self.entered is not job:
            for name, value in self.outside.items():
                _restore(name, value)
            self.outside = {name: environ.get(name) for name in job.env}
            environ.update(job.env)
            environ["INTERLOCK_RUN_ID"] = job.run_id
            environ["INTERLOCK_STEP_ID"] = job.step_id
            self.entered = job
        _, dispatch, unit_id, attempt, key, index, _ = unit
        environ["INTERLOCK_MARKER"] = dispatch.join(job.marker)
        environ["INTERLOCK_UNIT_ID"] = unit_id
        environ["INTERLOCK_ATTEMPT"] = str(attempt)
        environ["INTERLOCK_IDEMPOTENCY_KEY"] = key
        _restore("INTERLOCK_ITEM_INDEX", None if index is None else str(index))
        try:
            os.chdir(job.cwd)
        except OSError as error:
            raise Failure("spawn_failed", f"working directory {job.cwd}: {error.strerror}") from None


def _copier(shared: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """Return what makes copies of `shared`, the quickest way for its shape and size.

    A long list of scalars is copied ten times as fast by itself as through bytes; many small containers are not.
    """
    frozen = marshal.dumps(shared)
    if len(frozen) > COPY_LIMIT:
        return shared.copy
    nest: Nest = (shared, [])
    if _fill(nest, COPY_EACH) < 0:
        return lambda: marshal.loads(frozen)  # noqa: S302 - our own bytes
    return lambda: _copy(nest)


def _fill(nest: Nest, room: int) -> int:
    """Note where lists and dicts stand in a list or dict; return for how many more there is room, if any."""
    value, inner = nest
    for place, entry in value.items() if type(value) is dict else enumerate(value):
        if type(entry) in (list, dict):
            inside: Nest = (entry, [])
            inner.append((place, inside))
            room = _fill(inside, room - 1)
            if room < 0:
                break
    return room


def _copy(nest: Nest) -> Any:  # noqa: ANN401 - any JSON value
    value, inner = nest
    copied = value.copy()
    for place, inside in inner:
        copied[place] = _copy(inside)
    return copied


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _run(value: Awaitable[Any]) -> Any:  # noqa: ANN401 - any JSON value, one hopes
    import asyncio  # noqa: PLC0415 - a quarter of the zygote's start, and most functions are synchronous

    async def wait() -> Any:  # noqa: ANN401 - as above
        return await value

    return asyncio.run(wait())


def _exit_code(error: BaseException) -> int:
    code = error.code if isinstance(error, SystemExit) else 1
    return code if type(code) is int and code else 1


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot be printed still has a name
        text = "(its text cannot be had)"
    name = type(error).__name__
    text = text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."
    return f"{name}: {text}" if text else name


def _print_trace(error: BaseException) -> None:
    """Write a short traceback, without the frames of this file, to the unit's stderr."""
    try:
        import traceback  # noqa: PLC0415 - only failures need it

        lines = traceback.format_exception(type(error), error, _users_part(error.__traceback__), limit=-20)
        _send(2, "".join(lines).encode("utf-8", "backslashreplace"))
    except Exception:  # noqa: BLE001, S110 - out of memory or descriptors: the answer itself still says what failed
        pass


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name not in (__file__, importlib.__file__) and not name.startswith("<frozen importlib"):
            break
        trace = trace.tb_next
    return trace


def _json(value: Any) -> bytes:  # noqa: ANN401 - whatever the function returned
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
    return None if value is None or isinstance(value, int) else f"{place} is a {type(value).__name__}"


def _is_text(value: str) -> bool:
    try:
        return bool(value.encode())
    except UnicodeEncodeError:
        return False


def flush() -> None:
    """Write what `sys.stdout` and `sys.stderr` hold."""
    for stream in (sys.stdout, sys.stderr):
        # closed or replaced by the function: nothing is left to flush
        with contextlib.suppress(Exception):
            stream.flush()


def _send(fd: int, data: bytes) -> None:
    sent = os.write(fd, data)
    while sent < len(data):
        sent += os.write(fd, memoryview(data)[sent : sent + 1_048_576])


def _unread(pipe: int) -> bool:
    """Tell whether a pipe of ours holds what the driver has not read yet."""
    try:
        return any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    except OSError:
        # closed by the function, or no pipe any more: the driver reads nothing from it
        return False


def _frames(fd: int, before_read: Callable[[], None]) -> Iterator[tuple[int, bytes]]:
    held = b""
    while True:
        before_read()
        data = os.read(fd, CHUNK)
        if not data:
            return
        held += data
        while len(held) >= HEAD.size:
            kind, length = HEAD.unpack_from(held)
            end = HEAD.size + length
            if end > len(held):
                if length <= CHUNK:
                    break
                held += _read_exactly(fd, end - len(held))
            yield kind, held[HEAD.size : end]
            held = held[end:]


def _read_exactly(fd: int, count: int) -> bytearray:
    data = bytearray(count)
    view = memoryview(data)
    done = 0
    while done < count:
        got = os.readv(fd, [view[done:]])
        if not got:
            os._exit(0)
        done += got
    return data
