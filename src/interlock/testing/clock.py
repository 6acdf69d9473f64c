"""A clock that a test moves by hand."""

from __future__ import annotations

from interlock.driver.clock import StillClock, SystemClock


class FakeClock(StillClock):
    """A clock that sleeps and jumps as well."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, boot_ms: int = 1_000_000) -> None:
        super().__init__(wall_ms, boot_ms)

    def sleep(self, ms: int) -> None:
        """Let the machine sleep: the monotonic clock stands still."""
        self.wall += ms
        self.boot += ms

    def jump(self, ms: int) -> None:
        """Set the wall clock, as a person or a time server does."""
        self.wall += ms


class LateClock(SystemClock):
    """The host's clocks with the boot clock `late_ms` ahead, as for a process that was stopped for so long."""

    def __init__(self, late_ms: int = 0) -> None:
        self.late_ms = late_ms

    def boot_ms(self) -> int:
        """Milliseconds since boot, and so many more."""
        return super().boot_ms() + self.late_ms
