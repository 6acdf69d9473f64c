"""Time, the only place that asks for it."""

from __future__ import annotations

import time
from typing import Final, Protocol

_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Three clocks: wall for people, monotonic for timeouts (stops in sleep), boot for leases (does not)."""

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that stop while the machine sleeps."""
        ...

    def boot_ms(self) -> int:
        """Milliseconds since boot, sleep included."""
        ...


class StillClock:
    """Three clocks that stand still until they are moved."""

    def __init__(self, wall_ms: int, boot_ms: int) -> None:
        self.wall = wall_ms
        self.monotonic = boot_ms
        self.boot = boot_ms

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        return self.wall

    def monotonic_ms(self) -> int:
        """Milliseconds that stop while the machine sleeps."""
        return self.monotonic

    def boot_ms(self) -> int:
        """Milliseconds since boot, sleep included."""
        return self.boot

    def advance(self, ms: int) -> None:
        """Let time pass on all clocks."""
        self.wall += ms
        self.monotonic += ms
        self.boot += ms


class SystemClock:
    """The host's clocks."""

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds that stop while the machine sleeps."""
        return time.monotonic_ns() // 1_000_000

    def boot_ms(self) -> int:
        """Milliseconds since boot, sleep included; the monotonic clock where the host has no boot clock."""
        return time.clock_gettime_ns(_BOOT) // 1_000_000
