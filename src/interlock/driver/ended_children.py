"""Child runs that are ended from outside: which of those that were stopped, and what that is to their parents."""

from __future__ import annotations

from interlock.decide.budget import used_up
from interlock.driver.member import Member, Moment
from interlock.model.states import Reason, RunState


def why_ended(member: Member, moment: Moment) -> Reason | None:
    """Say why a child failed where it was not by itself: it was stopped, or a ceiling above it was reached."""
    if member.stopping is not None:
        return member.stopping.reason
    if member.snap.run.reason != Reason.BUDGET_EXCEEDED:
        return None
    level = member.parent
    while level is not None:
        if used_up(level.snap, level.driven_ms(moment.monotonic_ms), work=True, asks=True) is not None:
            return Reason.BUDGET_EXCEEDED
        level = level.parent
    return None


def ends(stopped: Member) -> bool:
    """Tell whether a stopped child is ended: not where it waits for a person, unless what it is a unit of is ended.

    Of a step that failed for good nobody is asked anything: the run would be blocked that has failed.
    """
    place = stopped.place
    if stopped.snap.run.state is RunState.ACTIVE or stopped.stopping is not None or place is None:
        return place is not None
    parent = place.member
    return parent.snap.halted == place.step.index or (parent.stopped_by() is not None and ends(parent))
