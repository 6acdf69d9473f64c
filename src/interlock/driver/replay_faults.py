"""Failures added to a replay on demand: `REASON@PLACE[:ITEM|:N]`. Each strikes once, the first dispatch that it fits.

PLACE is a step's id for its work, and `STEP.check` or `STEP.judge` for what its gate asks: step ids have no dots. Within
a child workflow it follows the step that runs it, `STEP>STEP`; a fault at that step itself fails the unit unopened.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from interlock.dispatch.base import Outcome, Request
from interlock.errors import UsageError
from interlock.model import canon
from interlock.model.plan import Child, Plan, Step
from interlock.model.states import Reason
from interlock.plan.diagnose import listed, shown, suggest

_FORM = "write REASON@STEP, REASON@STEP:N or REASON@STEP:ITEM, such as timeout@review:3 or timeout@review.judge"
_BELOW: Final = ">"
_MOST_DIGITS: Final = 9
_MOST_ITEMS: Final = 4
_UNSURE = frozenset({Reason.TIMEOUT, Reason.IDLE_TIMEOUT, Reason.KILLED, Reason.LOST, Reason.NETWORK_ERROR})
"""Failures after which nobody knows whether the work took effect."""
_MISSES = frozenset({Reason.PARSE_ERROR, Reason.VALIDATION_ERROR})
_QUOTA_MS = 3_600_000


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One failure to add: to the n-th dispatch at the place, to an item's first, or to the first of all."""

    text: str
    reason: Reason
    place: str
    nth: int | None = None
    item: bytes | None = None

    def fits(self, place: str, item: bytes | None, dispatched: int) -> bool:
        """Tell whether the fault strikes this dispatch, the `dispatched`-th at its place."""
        if place != self.place:
            return False
        if self.nth is not None:
            return dispatched == self.nth
        return self.item is None or self.item == item

    def why_unmet(self, dispatched: int, items: Collection[bytes]) -> str:
        """Say why no dispatch met the fault, of so many at its place, about these items."""
        if not dispatched:
            return f"nothing was dispatched at '{self.place}'"
        if self.nth is not None or self.item is None or self.item in items:
            others = "" if self.nth is not None and self.nth > dispatched else ", which other faults met"
            return f"'{self.place}' had {dispatched} dispatch{'es' if dispatched > 1 else ''}{others}"
        names = [shown(item.decode("utf-8", "replace")) for item in items]
        if not names:
            return f"'{self.place}' has no items"
        more = f" and {len(names) - _MOST_ITEMS:,} more" if len(names) > _MOST_ITEMS else ""
        return f"'{self.place}' was not asked about that item, but about {', '.join(names[:_MOST_ITEMS])}{more}"

    def outcome(self, dispatch: str, now: int) -> Outcome:
        """Return the failed end of the attempt."""
        return Outcome(
            dispatch=dispatch,
            status="failed",
            reason=self.reason,
            error=f"added by --fault {self.text}",
            answered=self.reason not in _UNSURE,
            missed=self.reason in _MISSES,
            quota_until=now + _QUOTA_MS if self.reason is Reason.LLM_QUOTA else None,
            started_at=now,
            ended_at=now,
        )


def parse_fault(text: str, plan: Plan) -> Fault:
    """Read one specification. Raises UsageError. A bare integer is N; write the item 3 as `3.0`."""
    # no step and no item holds bytes that are no UTF-8, and no JSON can show them
    text = text.encode("utf-8", "replace").decode()
    name, at, where = text.partition("@")
    place, colon, which = where.partition(":")
    if not at or not name or not place or (colon and not which):
        raise UsageError("invalid-fault", f"'{text}' is no fault", _FORM)
    reasons = [str(reason) for reason in Reason]
    if name not in reasons:
        raise UsageError("unknown-reason", f"'{name}' is no reason to fail", suggest(name, reasons) or _FORM)
    _check_place(place, plan)
    if which.isascii() and which.isdigit() and (len(which) > _MOST_DIGITS or not int(which)):
        raise UsageError(
            "invalid-fault", f"'{shown(text)}': dispatches count from 1 to {10**_MOST_DIGITS - 1:,}", _FORM
        )
    number = int(which) if which.isascii() and which.isdigit() else None
    item = _item(which) if which and number is None else None
    return Fault(text=text, reason=Reason(name), place=place, nth=number, item=item)


def place_of(request: Request) -> str:
    """Return the place of a dispatch, as a fault names it."""
    job = request.job
    if not job.accepts_any_exit:
        return job.step_id
    if job.call is not None:
        return f"{job.step_id}.judge"
    return f"{job.step_id}.check" if job.artifact_json is not None else f"{job.step_id}.other"


def _check_place(place: str, plan: Plan) -> None:
    *above, last = place.split(_BELOW)
    steps, where = plan.steps, "the workflow"
    for name in above:
        callers = {spec.id: spec.target for spec in steps if isinstance(spec.target, Child)}
        if name not in callers:
            hint = suggest(name, callers) or (f"use {listed([*callers])}" if callers else _FORM)
            raise UsageError("unknown-step", f"{where} has no step '{name}' that runs a child workflow", hint)
        steps, where = plan.children[callers[name].plan].steps, callers[name].path
    places = {spec.id: _places(spec) for spec in steps if spec.route is None}
    step, _, asked = last.partition(".")
    if step not in places:
        hint = suggest(step, places) or _FORM
        raise UsageError("unknown-step", f"{where} has no step '{step}' that does work", hint)
    if last not in places[step]:
        message = f"step '{step}' has no '{asked}' that could fail"
        raise UsageError("unknown-place", message, f"use {listed(places[step])}")


def _places(spec: Step) -> list[str]:
    """Return the step's places. The check of a merge is part of the merge and can't fail alone."""
    gate = spec.gate
    merges = spec.map is not None and spec.map.reducer == "merge"
    checked = gate is not None and gate.check is not None and not merges
    judged = gate is not None and gate.judge is not None
    return [spec.id, *[f"{spec.id}.check"] * checked, *[f"{spec.id}.judge"] * judged]


def _item(text: str) -> bytes:
    try:
        return canon.dumps(canon.loads(text))
    except canon.NotJsonError:
        return canon.dumps(text)
