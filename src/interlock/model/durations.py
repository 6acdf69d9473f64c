"""How a duration is spelled wherever one is shown: as it is written in a workflow."""

from __future__ import annotations

from typing import Final

_LARGEST_FIRST: Final = (("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def spelled_duration(duration_ms: int | None) -> str:
    """Return what a workflow or configuration reads as that, in the largest unit that keeps it whole; None is `none`."""
    if duration_ms is None:
        return "none"
    unit, size = next((unit, size) for unit, size in _LARGEST_FIRST if duration_ms % size == 0)
    return f"{duration_ms // size}{unit}"
