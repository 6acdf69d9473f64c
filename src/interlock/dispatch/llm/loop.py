"""An event loop for model calls, in a thread of its own; started by the first call.

Why a loop below synchronous code: only there can a call be ended at once and by the clock of its whole duration.
A blocked read of the SDKs' synchronous clients can neither be cancelled nor bounded but from byte to byte.
Guarantees: work that was begun always ends; after `close` no task, thread or connection is left.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

_JOIN_S: Final = 10.0

Work = Callable[[], Coroutine[Any, Any, None]]


class Loop:
    """Runs coroutines for other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def begin(self, work: Work) -> Callable[[], None]:
        """Start `work()`, which must not raise; return a function that cancels it, to be called from any thread.

        A cancel that comes before the work has begun does nothing: a task cancelled then would never run at all, and
        nobody would tell its end. So the work looks for itself whether it is still wanted, first of all.
        """
        loop = self._running()
        task: asyncio.Task[None] | None = None
        begun = False

        async def carried() -> None:
            nonlocal begun
            begun = True
            await work()

        def start() -> None:
            nonlocal task
            task = loop.create_task(carried())

        def cancel() -> None:
            # a second cancel would break off the tidying up that follows the first
            if task is not None and begun and not task.done() and not task.cancelling():
                task.cancel()

        def from_outside() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(cancel)

        loop.call_soon_threadsafe(start)
        return from_outside

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="llm-loop", daemon=True)
                self._thread.start()
            return self._loop

    def close(self, last: Work) -> None:
        """End what is under way, run `last()` and stop; nothing when no call was ever made. Idempotent."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(_wind_up(last), loop).result(_JOIN_S)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_JOIN_S)
            if not thread.is_alive():
                loop.close()


async def _wind_up(last: Work) -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await last()
    await asyncio.get_running_loop().shutdown_asyncgens()
