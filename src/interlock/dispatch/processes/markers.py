"""The marker that every child carries in its environment, by which it is found wherever it went.

`INTERLOCK_MARKER=<run>:<holder>:<term>:<dispatch>`; a driver that itself runs below another one's attempt
appends the outer marker after a blank, so that the outer one still finds everything below it. A marker
survives fork, exec, setsid and a dead parent; only a program that empties its environment loses it.
"""

from __future__ import annotations

from typing import Final

import msgspec

VARIABLE: Final = "INTERLOCK_MARKER"


class Marker(msgspec.Struct, frozen=True):
    """Who drives: all that a driver's children have in common."""

    run_id: str
    holder: str
    term: int
    outer: str = ""
    """The value of `INTERLOCK_MARKER` that this driver was born with."""

    @property
    def prefix(self) -> str:
        """What the markers of all children of this driver, in this term, start with."""
        return f"{self.run_id}:{self.holder}:{self.term}:"

    def value(self, dispatch: str) -> str:
        """Return what a child of the attempt gets as its marker."""
        own = self.prefix + dispatch
        return f"{own} {self.outer}" if self.outer else own


def dispatch_id(holder: str, step: int, number: int) -> str:
    """Return a dispatch id: unique by the driver's random holder id and its count, and telling its step."""
    return f"{holder}.{step}.{number}"


def step_of(dispatch: str) -> int | None:
    """Return the step that a dispatch id tells, None for an id of another make."""
    parts = dispatch.split(".")
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else None  # noqa: PLR2004 - as dispatch_id makes it


class Mark(msgspec.Struct, frozen=True):
    """One marker as found on a process."""

    run_id: str
    holder: str
    term: str
    dispatch: str


def parse(value: str) -> list[Mark]:
    """Return the marks in a marker's value, innermost first; what is malformed is nobody's and left out."""
    parts = (text.split(":", 3) for text in value.split(" "))
    return [Mark(*found) for found in parts if len(found) == len(Mark.__struct_fields__)]
