"""What a worker process of `python:` units does: take a unit, call its function, send the answer.

Loaded by the zygote (zygote.py) under the project's own interpreter, any Python from 3.8 on and without interlock, so
it uses the standard library and what lies beside it only. Frames are a kind byte, a little-endian length and JSON;
answers also tell how long the unit took. Units that were sent ahead wait in a socket of their own, a message each,
which begins with how many units were sent by the plain way before it. Guarantees: one unit at a time, in the order in
which they were sent; whatever a function returns, raises or exits with becomes one answer, sent before the next unit is
taken; none that waits ahead is begun after a failure, or while output of the one before has not been read, until the
driver says so or sends another by the plain way; the worker ends when its socket closes.
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

from . import forks
from .answers import Failure, exit_code, json_of, print_trace, send, text_of
from .loading import ChangedError, Frozen
from .surroundings import Surroundings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
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
CHUNK = 65_536

_decode = json.JSONDecoder().decode


class Job:
    """What the units of one job share."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.module: str = data["module"]
        self.frozen = Frozen(self.module, data["frozen"])
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
        self.call: Callable[[dict[str, Any]], Any] | None = None
        """The function, once it was needed."""

    def load(self) -> Callable[[dict[str, Any]], Any]:
        """Import the function. Raises Failure."""
        name = f"python:{self.module}:{self.function}"
        importlib.invalidate_caches()
        try:
            found: Any = self.frozen.load()
        except ChangedError as error:
            raise Failure("aborted", str(error), changed=True) from None
        except BaseException as error:  # noqa: BLE001 - whatever a module raises or exits with is the unit's answer
            print_trace(error)
            places = ", ".join(str(path or ".") for path in sys.path)
            text = f"{name}: module {self.module!r} cannot be imported by {sys.executable}: {text_of(error)}"
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
        self.outside: dict[bytes, bytes | None] = {}
        self.marker = ""
        self.surroundings = Surroundings()
        os.register_at_fork(after_in_child=lambda: forks.show_marker(self.marker))

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
            kind, body = FAILURE, failure.body()
        except BaseException as error:  # noqa: BLE001 - one unit must not end the worker of others
            print_trace(error)
            kind, body = FAILURE, Failure("dispatch_error", f"the worker failed at it: {text_of(error)}").body()
        if os.getpid() != self.pid:
            # the function forked and its child came back here: only the worker itself answers
            os._exit(0)
        took_us = max(0, min(MAX_US, (perf_counter_ns() - began) // 1_000))
        # before anything else is waited for: an alarm of this unit would meet the next
        self.surroundings.restore()
        flush()
        if self.surroundings.restore_streams():
            flush()
        if kind == RESULT and (_unread(1) or _unread(2)):
            kind = SPOKE
        self.held = kind != RESULT
        send(self.fd, ANSWER.pack(kind, len(body), took_us) + body)

    def result(self, job: Job, unit: list[Any]) -> bytes:
        """Return the function's value as JSON. Raises Failure."""
        self.enter(job, unit)
        call = job.call
        if call is None:
            call = job.call = job.load()
            self.surroundings.learn()
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
            print_trace(error)
            raise Failure("non_zero_exit", text_of(error), exit_code(error)) from None
        body = json_of(value)
        if len(body) > job.max_result_bytes:
            text = "the function returned %d bytes of JSON; the limit is %d (max_result_bytes of [limits])"
            text %= len(body), job.max_result_bytes
            raise Failure("output_too_large", text)
        return body

    def enter(self, job: Job, unit: list[Any]) -> None:
        """Give the unit the same surroundings in every worker, its environment and its working directory."""
        around = self.surroundings
        if self.entered is not job:
            for name, before in self.outside.items():
                around.put(name, before)
            given = {os.fsencode(name): os.fsencode(value) for name, value in job.env.items()}
            self.outside = {name: around.get(name) for name in given}
            for name, value in given.items():
                around.put(name, value)
            around.put(b"INTERLOCK_RUN_ID", job.run_id.encode())
            around.put(b"INTERLOCK_STEP_ID", job.step_id.encode())
            self.entered = job
        _, dispatch, unit_id, attempt, key, index, _ = unit
        self.marker = dispatch.join(job.marker)
        around.put(b"INTERLOCK_MARKER", self.marker.encode())
        around.put(b"INTERLOCK_UNIT_ID", unit_id.encode())
        around.put(b"INTERLOCK_ATTEMPT", b"%d" % attempt)
        around.put(b"INTERLOCK_IDEMPOTENCY_KEY", key.encode())
        around.put(b"INTERLOCK_ITEM_INDEX", None if index is None else b"%d" % index)
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


def _run(value: Awaitable[Any]) -> Any:  # noqa: ANN401 - any JSON value, one hopes
    import asyncio  # noqa: PLC0415 - a quarter of the zygote's start, and most functions are synchronous

    async def wait() -> Any:  # noqa: ANN401 - as above
        return await value

    return asyncio.run(wait())


def flush() -> None:
    """Write what `sys.stdout` and `sys.stderr` hold."""
    for stream in (sys.stdout, sys.stderr):
        # closed or replaced by the function: nothing is left to flush
        with contextlib.suppress(Exception):
            stream.flush()


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
