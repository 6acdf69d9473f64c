"""The driver's end of the zygote: starts it, asks it for workers, hears of their ends.

Guarantees: a worker's pid and start time are known when `fork` returns; a zygote that does not come up says why
(NoWorkerError, with what it wrote to stderr); after `close` neither it nor a worker's group is left.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections import deque
from typing import IO, Final

import msgspec

from interlock.dispatch.processes.identity import identify
from interlock.dispatch.processes.open_files import give_back
from interlock.dispatch.python import zygote
from interlock.model.events import Process

START_TIMEOUT_S: Final = 20.0
_CLOSE_TIMEOUT_S: Final = 5.0
_REAP_S: Final = 0.1
_OLDEST: Final = 8

_Socket = socket.socket


class NoWorkerError(Exception):
    """No worker can be had; the message says why."""


class Interpreter(msgspec.Struct, frozen=True):
    """What runs the functions: argv prefix, folders before its own path, environment."""

    argv: tuple[str, ...]
    folders: tuple[str, ...]
    env: dict[bytes, bytes]


class Ends(msgspec.Struct, frozen=True):
    """The driver's ends of what connects it with one worker."""

    process: Process
    socket: _Socket
    ahead: _Socket
    waiting: _Socket
    """The worker's own end of `ahead`: what is read from it here, the worker will never see."""
    out: int
    err: int


_Wires = tuple[_Socket, _Socket, _Socket, int, int]


class Link:
    """One zygote. Raises NoWorkerError when it cannot be started."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._ended: list[tuple[int, int]] = []
        self.dead = False
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # a file that is nobody else's and goes with us
        self._stderr: IO[bytes] = os.fdopen(os.memfd_create("stderr"), "w+b")
        argv = [*interpreter.argv, zygote.__file__, str(theirs.fileno()), *interpreter.folders]
        try:
            self._process = self._spawn(argv, theirs.fileno(), interpreter.env)
        except (OSError, ValueError) as error:
            self.control.close()
            self._stderr.close()
            text = error.strerror if isinstance(error, OSError) else str(error)
            raise NoWorkerError(f"{argv[0]}: {text}") from error
        finally:
            theirs.close()
        self._poll = select.poll()
        self._poll.register(self.control, select.POLLIN)
        self.control.setblocking(False)  # noqa: FBT003 - takes it by place only

    def _spawn(self, argv: list[str], control: int, env: dict[bytes, bytes]) -> subprocess.Popen[bytes]:
        popen = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            env=env,
            pass_fds=(control,),
            start_new_session=True,
        )
        give_back(popen.pid)
        return popen

    @property
    def pid(self) -> int:
        """The zygote's pid."""
        return self._process.pid

    def fork(self, count: int) -> list[Ends]:
        """Return up to `count` new workers. Raises NoWorkerError when not even one can be had."""
        asked, problem = self._ask_for(count)
        forked: list[Ends] = []
        until = time.monotonic() + START_TIMEOUT_S
        try:
            # each request that was sent is answered, and its answer must be taken before the next one is
            while asked:
                pid, fork_errno = self._answer(until)
                wires = asked.popleft()
                if pid:
                    forked.append(Ends(identify(pid) or Process(pid, 0, ""), *wires))
                else:
                    problem = f"cannot fork a worker: {os.strerror(fork_errno)}"
                    _close(wires)
        finally:
            for wires in asked:
                _close(wires)
        if not forked:
            raise NoWorkerError(problem)
        return forked

    def _ask_for(self, count: int) -> tuple[deque[_Wires], str]:
        """Send the requests; as many as there are descriptors for, and what stood in the way of more."""
        asked: deque[_Wires] = deque()
        try:
            for _ in range(count):
                asked.append(self._ask())
        except ConnectionError:
            return asked, self._why("ended")
        except OSError as error:
            return asked, f"cannot make a worker: {error.strerror}"
        return asked, ""

    def _ask(self) -> _Wires:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            mine, its = socket.socketpair()
            ours.callback(mine.close)
            theirs.callback(its.close)
            # a message is taken by one reader, whole: so what was sent ahead can be had back
            ahead, waiting = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.callback(ahead.close)
            ours.callback(waiting.close)
            pipes: list[int] = []
            for _ in range(2):
                pipes.extend(os.pipe())
                ours.callback(os.close, pipes[-2])
                theirs.callback(os.close, pipes[-1])
            out, out_theirs, err, err_theirs = pipes
            for end in (mine, ahead, waiting):
                end.setblocking(False)  # noqa: FBT003 - takes it by place only
            os.set_blocking(out, False)
            os.set_blocking(err, False)
            socket.send_fds(self.control, [b"F"], [its.fileno(), waiting.fileno(), out_theirs, err_theirs])
            ours.pop_all()
        return mine, ahead, waiting, out, err

    def _answer(self, until: float) -> tuple[int, int]:
        """Wait for the answer to one request: a pid, or 0 and the error's number."""
        while True:
            wait_s = until - time.monotonic()
            if wait_s <= 0 or not self._poll.poll(wait_s * 1_000):
                self.kill()
                raise NoWorkerError(self._why(f"gave no worker within {START_TIMEOUT_S:.0f} s"))
            kind, pid, value = self._receive() or (0, 0, 0)
            if kind in (zygote.FORKED, zygote.NO_FORK):
                return pid, value
            if kind == zygote.READY and value < _OLDEST:
                self.kill()
                raise NoWorkerError(f"{self._name()} is Python 3.{value}; python: targets need 3.{_OLDEST} or newer")
            if kind == 0:
                raise NoWorkerError(self._why("ended"))

    def _receive(self) -> tuple[int, int, int] | None:
        """One piece of news; ends are kept for `ended`. None when the zygote is gone."""
        try:
            raw = self.control.recv(zygote.NEWS.size)
        except ConnectionError:
            raw = b""
        if not raw:
            self.dead = True
            return None
        news: tuple[int, int, int] = zygote.NEWS.unpack(raw)
        if news[0] == zygote.ENDED:
            self._ended.append(news[1:])
        return news

    def ended(self) -> list[tuple[int, int]]:
        """Return pid and wait status of workers that ended, without waiting; `dead` is set when the zygote did."""
        with contextlib.suppress(BlockingIOError):
            while not self.dead and self._receive():
                pass
        found, self._ended = self._ended, []
        return found

    def _name(self) -> str:
        argv = self._process.args
        return str(argv[0]) if isinstance(argv, list) else str(argv)

    def _why(self, text: str) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)
        self._stderr.seek(0)
        said = self._stderr.read()[-1_000:].decode(errors="replace").strip()
        return f"{self._name()} {text}" + (f": {said}" if said else "")

    def kill(self) -> None:
        """End the zygote at once; its workers are the caller's to end."""
        self.dead = True
        self._process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Let the zygote end its workers and itself. Idempotent."""
        self.control.close()
        _await_end(self._process.pid, _CLOSE_TIMEOUT_S)
        try:
            self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()


def _await_end(pid: int, bound_s: float) -> None:
    """Wait for the end of a child of ours: `Popen.wait` looks at growing intervals and is late by as much."""
    with contextlib.suppress(OSError, AttributeError):
        fd = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll(bound_s * 1_000)
        finally:
            os.close(fd)


def _close(wires: _Wires) -> None:
    for end in wires[:3]:
        end.close()
    for pipe in wires[3:]:
        os.close(pipe)
