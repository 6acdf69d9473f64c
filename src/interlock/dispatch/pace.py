"""How long units of one kind take, and how many may therefore wait in line behind each that is under way."""

from __future__ import annotations

from typing import Final

MOST: Final = 64
_MEMORY: Final = 0.9


class Pace:
    """One slow unit counts at once, quick ones bring the mean down again slowly. Times are in one unit, the caller's."""

    __slots__ = ("mean",)

    def __init__(self) -> None:
        self.mean: float | None = None
        """None as long as nothing has ended."""

    def note(self, took: float) -> None:
        """Learn from an end."""
        mean = self.mean
        self.mean = took if mean is None or took > mean else _MEMORY * mean + (1 - _MEMORY) * took

    def each(self, look: float, slow: float) -> int:
        """Return how many may wait behind one: what it is expected to do in `look`, none where the mean is above `slow`."""
        return 0 if self.mean is None or self.mean > slow else min(MOST, int(look / max(self.mean, 1.0)))
