"""What a decision may ask for: a change to journal, or work to dispatch."""

from __future__ import annotations

import msgspec

from interlock.model.events import Event


class Dispatch(msgspec.Struct, frozen=True, array_like=True):
    """Reserve and start the next attempt of a unit."""

    step: int
    unit: int
    ahead: bool = False
    """It takes no place: it waits in line for one."""


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """A step's open attempts that wait in line behind others and have not begun, and how many may behind each."""

    waiting: int
    each: int


Action = Event | Dispatch
