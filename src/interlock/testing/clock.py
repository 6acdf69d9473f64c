"""A clock that a test moves by hand."""

from __future__ import annotations


class FakeClock:
    """Body of `run.clock.Clock`: all three clocks stand still until told to move."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, boot_ms: int = 1_000_000) -> None:
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

    def sleep(self, ms: int) -> None:
        """Let the machine sleep: the monotonic clock stands still."""
        self.wall += ms
        self.boot += ms

    def jump(self, ms: int) -> None:
        """Set the wall clock, as a person or a time server does."""
        self.wall += ms
