"""Failures added to a replay on demand: `REASON@PLACE[:ITEM|:N]`. Each strikes once, the first dispatch that it fits.

PLACE is a step's id for its work, and `STEP.check` or `STEP.judge` for what its gate asks: step ids have no dots. Within
a child workflow it follows the step that runs it, `STEP>STEP`, and in the child of one item `STEP[ITEM]>STEP`; a fault at
the step that runs children fails the unit unopened.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from interlock.dispatch.base import Outcome, Request
from interlock.errors import UsageError
from interlock.model import canon
from interlock.model.plan import Child, Plan, Step
from interlock.model.states import Reason
from interlock.plan.diagnose import listed, shown, suggest

_FORM = "write REASON@STEP, REASON@STEP:N or REASON@STEP:ITEM, such as timeout@review:3 or timeout@review.judge"
_HOP: Final = re.compile(r"([^\[\]>:.]+)(?:\[(.+?)\])?>", re.DOTALL)
"""The step of a child run, and the item that it is for; one that holds `]>` is written as JSON, with an escape."""
_MOST_DIGITS: Final = 9
_MOST_ITEMS: Final = 4
_UNSURE = frozenset({Reason.TIMEOUT, Reason.IDLE_TIMEOUT, Reason.KILLED, Reason.LOST, Reason.NETWORK_ERROR})
"""Failures after which nobody knows whether the work took effect."""
_MISSES = frozenset({Reason.PARSE_ERROR, Reason.VALIDATION_ERROR})
_QUOTA_MS = 3_600_000


At = tuple[str, tuple[bytes | None, ...]]
"""A place, and the items of the child runs that lead there."""
Dispatched = Counter[At]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One failure to add: to the n-th dispatch at the place, to an item's first, or to the first of all."""

    text: str
    reason: Reason
    place: str
    above: tuple[bytes | None, ...] = ()
    """The items of the runs on the way to it; None is any."""
    nth: int | None = None
    item: bytes | None = None

    def fits(self, at: At, item: bytes | None, dispatched: Dispatched) -> bool:
        """Tell whether the fault strikes this dispatch, which is in the count already."""
        if not self.meets(at):
            return False
        if self.nth is not None:
            return self.count(dispatched) == self.nth
        return self.item is None or self.item == item

    def meets(self, at: At) -> bool:
        """Tell whether this is its place."""
        place, items = at
        return place == self.place and all(mine in (None, its) for mine, its in zip(self.above, items, strict=True))

    def count(self, dispatched: Dispatched) -> int:
        """Return how many dispatches there were at its place."""
        return sum(number for at, number in dispatched.items() if self.meets(at))

    def why_unmet(self, dispatched: int, items: Collection[bytes]) -> str:
        """Say why no dispatch met the fault, of so many at its place, about these items."""
        if not dispatched:
            within = " for the items above it" if any(item is not None for item in self.above) else ""
            return f"nothing was dispatched at '{self.place}'{within}"
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
    hops, where = _hops(where)
    last, colon, which = where.partition(":")
    if not at or not name or not last or (colon and not which):
        raise UsageError("invalid-fault", f"'{text}' is no fault", _FORM)
    reasons = [str(reason) for reason in Reason]
    if name not in reasons:
        raise UsageError("unknown-reason", f"'{name}' is no reason to fail", suggest(name, reasons) or _FORM)
    _check_place(hops, last, plan)
    if which.isascii() and which.isdigit() and (len(which) > _MOST_DIGITS or not int(which)):
        raise UsageError(
            "invalid-fault", f"'{shown(text)}': dispatches count from 1 to {10**_MOST_DIGITS - 1:,}", _FORM
        )
    number = int(which) if which.isascii() and which.isdigit() else None
    item = _item(which) if which and number is None else None
    place = ">".join([*(step for step, _ in hops), last])
    above = tuple(None if one is None else _item(one) for _, one in hops)
    return Fault(text=text, reason=Reason(name), place=place, above=above, nth=number, item=item)


def _hops(where: str) -> tuple[list[tuple[str, str | None]], str]:
    """Return the steps on the way down with the items that were named, and the rest."""
    hops: list[tuple[str, str | None]] = []
    while found := _HOP.match(where):
        hops.append((found[1], found[2]))
        where = where[found.end() :]
    return hops, where


def place_of(request: Request) -> str:
    """Return the place of a dispatch, as a fault names it."""
    job = request.job
    if not job.accepts_any_exit:
        return job.step_id
    if job.call is not None:
        return f"{job.step_id}.judge"
    return f"{job.step_id}.check" if job.artifact_json is not None else f"{job.step_id}.other"


def _check_place(above: Sequence[tuple[str, str | None]], last: str, plan: Plan) -> None:
    steps, where = plan.steps, "the workflow"
    for name, item in above:
        callers = {spec.id: spec.target for spec in steps if isinstance(spec.target, Child)}
        if name not in callers:
            hint = suggest(name, callers) or (f"use {listed([*callers])}" if callers else _FORM)
            raise UsageError("unknown-step", f"{where} has no step '{name}' that runs a child workflow", hint)
        if item is not None and all(spec.map is None for spec in steps if spec.id == name):
            raise UsageError("invalid-fault", f"step '{name}' has no items: it is no map", f"write {name}>STEP")
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
