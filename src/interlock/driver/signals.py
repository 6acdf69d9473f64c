"""Signals that ask a driver to stop, handed to its loop while it drives and to whoever waits in between."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from interlock.driver.loop import Loop

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)


def interrupting(loop: Loop) -> contextlib.AbstractContextManager[None]:
    """Let what asks a driver to stop interrupt `loop`."""
    return stopping(loop.interrupt)


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
        if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
            continue
        before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
