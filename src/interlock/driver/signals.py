"""Signals that ask a driver to stop, handed to its loop while it drives."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

from interlock.driver.loop import Loop

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)


@contextlib.contextmanager
def interrupting(loop: Loop) -> Iterator[None]:
    """Let SIGINT, SIGTERM, SIGQUIT and SIGHUP (unless it was ignored) interrupt `loop`; restore them at the end.

    Off the main thread nothing is installed: whoever embeds the driver owns the signals there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(_number: int, _frame: Any) -> None:  # noqa: ANN401 - a frame is of no use here
        loop.interrupt()

    before = {}
    for number in _STOPPING:
        if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
            continue
        before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
