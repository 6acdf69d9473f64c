"""Signals that ask a driver to stop, handed to its loop once there is one, and to whoever waits in between."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from interlock.driver.loop import Loop

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)


class Interrupts:
    """Hands on what asked to stop; what comes before the loop is there waits for it."""

    def __init__(self) -> None:
        self._loop: Loop | None = None
        self._times = 0

    def __call__(self) -> None:
        """Take one in. Raises KeyboardInterrupt for the second one before there is a loop."""
        self._times += 1
        if self._loop is not None:
            self._loop.interrupt()
        elif self._times > 1:
            # nothing runs yet that could be ended gently
            raise KeyboardInterrupt

    @property
    def came(self) -> bool:
        """Tell whether anything asked to stop, be it when the loop had ended."""
        return self._times > 0

    def attach(self, loop: Loop) -> None:
        """Let the loop hear of what came, and of what comes."""
        self._loop = loop
        for _ in range(self._times):
            loop.interrupt()


@contextlib.contextmanager
def interrupting() -> Iterator[Interrupts]:
    """Let what asks a driver to stop reach the loop that is attached."""
    interrupts = Interrupts()
    with stopping(interrupts):
        yield interrupts


@contextlib.contextmanager
def stopping(asked: Callable[[], object]) -> Iterator[None]:
    """Call `asked` on SIGINT, SIGTERM, SIGQUIT and SIGHUP (unless it was ignored); restore them at the end.

    Off the main thread nothing is installed: whoever embeds the driver owns the signals there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(_number: int, _frame: Any) -> None:  # noqa: ANN401 - a frame is of no use here
        asked()

    before = {}
    for number in _STOPPING:
        held = signal.getsignal(number)
        # None is a handler that was not set from Python, and that Python can't put back
        if held is None or (number == signal.SIGHUP and held == signal.SIG_IGN):
            continue
        before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
