"""What a function finds in its process: the same in every worker, however the units before it left theirs.

A part of the worker (worker.py says what that means). Put back after each unit: what `os.environ` holds, umask,
handlers and mask of the signals that programs use, a pending alarm, `sys.path`, `sys.argv`, the standard streams, the
recursion limit, and limits of resources as far as the system lets them be raised again. What a module does while a job
first imports it stays, as its globals do. It costs a few microseconds where nothing was changed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

_KNOWN = "resource" in sys.modules
import resource  # noqa: E402 - the line above has to know whether somebody else needs it

if not _KNOWN:
    # whether a function has imported it tells whether limits are worth a look
    del sys.modules["resource"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_low = sys.modules.get("_signal", signal)
# without the look-up in enumerations of `signal`, which costs more than all else here
_handler_of: Callable[[int], Any] = _low.getsignal
_set_mask: Callable[[int, Iterable[int]], set[int]] = _low.pthread_sigmask
_NAMES = "HUP|INT|QUIT|TERM|PIPE|ALRM|VTALRM|PROF|CHLD|CONT|TSTP|TTIN|TTOU|USR1|USR2|WINCH|IO|XCPU"
_SIGNALS = [int(getattr(signal, "SIG" + name)) for name in _NAMES.split("|")]
_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


class Surroundings:
    """Of one worker process."""

    def __init__(self) -> None:
        self.environ = os.environ
        self.bytes = os.environb
        self.raw: dict[bytes, bytes] = vars(os.environ)["_data"]
        self.streams = (sys.stdin, sys.stdout, sys.stderr)
        self.learn()

    def learn(self) -> None:
        """Take what is now for what every unit is to find."""
        self.umask = os.umask(0o077)
        os.umask(self.umask)
        self.handlers = list(map(_handler_of, _SIGNALS))
        self.mask = _set_mask(signal.SIG_BLOCK, ())
        self.path, self.paths = sys.path, list(sys.path)
        self.argv, self.args = sys.argv, list(sys.argv)
        self.recursion = sys.getrecursionlimit()
        self.limits = list(map(resource.getrlimit, _LIMITS))
        self.given = self.raw.copy()

    def get(self, name: bytes) -> bytes | None:
        """Return a variable's value."""
        return self.raw.get(name)

    def put(self, name: bytes, value: bytes | None) -> None:
        """Give the next unit a variable, or take it away: what `os.environ` does, without its checks."""
        if value is None:
            if name in self.raw:
                os.unsetenv(name)
                del self.raw[name], self.given[name]
        elif self.raw.get(name) != value:
            os.putenv(name, value)
            self.raw[name] = self.given[name] = value

    def restore(self) -> None:
        """Put back what was changed since it was learned."""
        os.environ = self.environ  # noqa: B003 - the very object, should a function have replaced it
        if self.raw != self.given:
            self._restore_environment()
        os.umask(self.umask)
        signal.alarm(0)
        if list(map(_handler_of, _SIGNALS)) != self.handlers:
            self._restore_handlers()
        _set_mask(signal.SIG_SETMASK, self.mask)
        sys.path, sys.argv = self.path, self.argv
        if self.path != self.paths:
            self.path[:] = self.paths
        if self.argv != self.args:
            self.argv[:] = self.args
        if sys.getrecursionlimit() != self.recursion:
            sys.setrecursionlimit(self.recursion)
        if "resource" in sys.modules:
            self._restore_limits()

    def restore_streams(self) -> bool:
        """Put the standard streams back; tell whether that had to be done."""
        found = (sys.stdin, sys.stdout, sys.stderr)
        sys.stdin, sys.stdout, sys.stderr = self.streams
        return found != self.streams

    def _restore_environment(self) -> None:
        for name in self.raw.keys() - self.given.keys():
            del self.bytes[name]
        for name, value in self.given.items():
            if self.raw.get(name) != value:
                self.bytes[name] = value

    def _restore_handlers(self) -> None:
        for timer in (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
            # one that runs on would meet the default, and end the worker in the midst of another unit
            signal.setitimer(timer, 0)
        for number, handler in zip(_SIGNALS, self.handlers):  # noqa: B905 - Python 3.8
            # None: set by no Python program, and to none that Python could set
            if handler is not None and _handler_of(number) != handler:
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(number, handler)

    def _restore_limits(self) -> None:
        for number, (soft, hard) in zip(_LIMITS, self.limits):  # noqa: B905 - as above
            now = resource.getrlimit(number)
            if now != (soft, hard):
                _set_limit(number, soft, hard) or _set_limit(number, _lower(soft, now[1]), now[1])


def _set_limit(number: int, soft: int, hard: int) -> bool:
    try:
        resource.setrlimit(number, (soft, hard))
    except (OSError, ValueError):
        return False
    return True


def _lower(one: int, other: int) -> int:
    if resource.RLIM_INFINITY in (one, other):
        return other if one == resource.RLIM_INFINITY else one
    return min(one, other)
