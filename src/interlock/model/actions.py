"""What a decision may ask for: a change to journal, or work to dispatch."""

from __future__ import annotations

import msgspec

from interlock.model.events import Event


class Dispatch(msgspec.Struct, frozen=True, array_like=True):
    """Reserve and start the next attempt of a unit."""

    step: int
    unit: int


Action = Event | Dispatch
