"""Sleeping until a run is due.

Guarantees: what asks a driver to stop ends the sleep; the time is the wall clock's, so that a machine that was
suspended, or whose clock was set, is not waited for longer than it has to be.
"""

from __future__ import annotations

import time
from typing import Final

from interlock.driver.clock import Clock
from interlock.driver.signals import stopping

_LOOK_S: Final = 5.0


def slept_until(due_ms: int, clock: Clock) -> bool:
    """Sleep; return False when it was asked to stop."""
    try:
        with stopping(_stop):
            while (left_s := (due_ms - clock.wall_ms()) / 1000) > 0:
                time.sleep(min(left_s, _LOOK_S))
    except KeyboardInterrupt:
        return False
    return True


def _stop() -> None:
    # time.sleep goes on after a signal whose handler returns
    raise KeyboardInterrupt
