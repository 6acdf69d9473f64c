"""What gc learns of the room that a journal takes."""

from __future__ import annotations

import msgspec


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a journal's free pages. `why` says why those that are worth it were not given back."""

    given_back_bytes: int = 0
    free_bytes: int = 0
    """Still in the file, for later runs."""
    why: str = ""
