"""Sleeping until a run is due.

Guarantees: what asks a driver to stop ends the sleep; the time is the wall clock's, so that a machine that was
suspended, or whose clock was set, is not waited for longer than it has to be.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from interlock.driver.clock import Clock
from interlock.driver.result import INTERRUPTED, Result
from interlock.driver.signals import stopping
from interlock.model.states import RunState

_LOOK_S: Final = 5.0


def waited(
    go_on: Callable[[float | None], Result], due: Callable[[], int], clock: Clock, timeout_s: float | None
) -> Result:
    """Go on with a run each time it is due, until it waits no more; `timeout_s` holds for all of it together."""
    until = None if timeout_s is None else time.monotonic() + timeout_s
    result = go_on(timeout_s)
    try:
        with stopping(_stop):
            while result.state == RunState.WAITING and result.exit_code != INTERRUPTED:
                now, at = clock.wall_ms(), due()
                end = at if until is None else min(at, now + int((until - time.monotonic()) * 1000))
                _sleep_until(end, clock)
                if end < at:
                    break
                result = go_on(None if until is None else max(0.0, until - time.monotonic()))
    except KeyboardInterrupt:
        return msgspec.structs.replace(result, exit_code=INTERRUPTED)
    return result


def _sleep_until(due_ms: int, clock: Clock) -> None:
    while (left_s := (due_ms - clock.wall_ms()) / 1000) > 0:
        time.sleep(min(left_s, _LOOK_S))


def _stop() -> None:
    # time.sleep goes on after a signal whose handler returns
    raise KeyboardInterrupt
