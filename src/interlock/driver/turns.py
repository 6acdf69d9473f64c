"""Which child runs may go on: of one step not more at a time than its map's concurrency, whoever waited in between.

A child that waits for a person or a quota takes no place, so that others are opened meanwhile. One that goes on again
takes its turn behind those that move already.
"""

from __future__ import annotations

from collections import defaultdict

from interlock.decide.schedule import width
from interlock.driver.member import Member


class Turns:
    """The child runs of each step that can move, in the order in which they began or began again to."""

    def __init__(self) -> None:
        self._lines: defaultdict[tuple[str, int], list[Member]] = defaultdict(list)

    def join(self, member: Member) -> None:
        """Line up a child run that moves now."""
        self._line(member).append(member)

    def leave(self, member: Member) -> None:
        """Give up the place of one that can't move, or is over."""
        line = self._line(member)
        if member in line:
            line.remove(member)

    def has(self, member: Member, map_concurrency: int) -> bool:
        """Tell whether it is the turn of the run and of those above it."""
        level: Member | None = member
        while level is not None and level.place is not None:
            spec = level.place.member.snap.plan.steps[level.place.step.index]
            if level not in self._line(level)[: width(spec, map_concurrency)]:
                return False
            level = level.parent
        return True

    def _line(self, member: Member) -> list[Member]:
        if member.place is None:
            return []
        return self._lines[member.place.member.snap.run.id, member.place.step.index]
