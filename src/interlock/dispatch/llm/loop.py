"""The one event loop of a run's model calls, in a thread of its own; started by the first call.

Why a loop below synchronous code: only there can a call be ended at once and by the clock of its whole duration.
A blocked read of the SDKs' synchronous clients can neither be cancelled nor bounded but from byte to byte.
Guarantees: `call` returns when the work has really ended; after `close` no task, thread or connection is left.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
_JOIN_S: Final = 10.0


class Loop:
    """Runs coroutines for other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], on_begin: Callable[[Callable[[], None]], None]) -> T:
        """Run `work()` to its end. `on_begin` gets a function that cancels it, to be called from any thread."""
        loop = self._running()
        task: asyncio.Task[Any] | None = None

        async def carried() -> T:
            nonlocal task
            task = asyncio.current_task()
            return await work()

        def cancel() -> None:
            if task is not None and not task.done() and not task.cancelling():
                task.cancel()

        def from_outside() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(cancel)

        future = asyncio.run_coroutine_threadsafe(carried(), loop)
        on_begin(from_outside)
        return future.result()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="llm-loop", daemon=True)
                self._thread.start()
            return self._loop

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `last()` and end; nothing when no call was ever made. Idempotent."""
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


async def _wind_up(last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await last()
    await asyncio.get_running_loop().shutdown_asyncgens()
