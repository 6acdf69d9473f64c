"""The moment of a decision."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from interlock.model.actions import Ahead


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The moment of a decision and the host's limits. Times in milliseconds."""

    at: int
    driven_ms: int = 0
    """How long the run was driven, over all its drivers."""
    above_ms: tuple[int, ...] = ()
    """The same of the runs above it, from its parent up."""
    map_concurrency: int = 4
    """Of a map that names none: `min(16, max(4, 2 * cores))`."""
    ahead: Mapping[int, Ahead] = {}
    """By step: attempts that wait in line behind others."""
