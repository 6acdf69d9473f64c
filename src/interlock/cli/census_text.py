"""The honest count in words, and how a run ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def census_text(census: Mapping[str, Any]) -> str:
    """Spell a census: `10 completed, 2 failed (2 timeout), 1 skipped, 3 not run`; zeros but completed are left out."""
    parts = [f"{census['completed']:,} completed"]
    if census["failed"]:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in census["by_reason"].items())
        parts.append(f"{census['failed']:,} failed" + (f" ({reasons})" if reasons else ""))
    for name, word in (("skipped", "skipped"), ("not_run", "not run"), ("reused", "reused")):
        if census[name]:
            parts.append(f"{census[name]:,} {word}")
    named = ("completed", "failed", "skipped", "not_run")
    left = census["units"] - sum(census[name] for name in named)
    if left > 0:
        parts.append(f"{left:,} not ended")
    return ", ".join(parts)


def ending(state: str, outcome: str | None, reason: str | None, *, stopping: bool = False) -> str:
    """Spell how a run stands: `completed`, `completed, degraded`, `failed (timeout)`, `active, stopping`."""
    if outcome == "degraded":
        return f"{state}, degraded"
    return (f"{state} ({reason})" if reason and reason != state else state) + (", stopping" if stopping else "")
