"""Failures added to a replay on demand: `REASON@STEP[:ITEM|:N]`. Each strikes once, the first dispatch that it fits."""

from __future__ import annotations

import msgspec

from interlock.dispatch.base import Outcome, Request
from interlock.errors import UsageError
from interlock.model import canon
from interlock.model.plan import Plan
from interlock.model.states import Reason
from interlock.plan.diagnose import suggest

_FORM = "write REASON@STEP, REASON@STEP:N or REASON@STEP:ITEM, such as timeout@review:3"
_UNSURE = frozenset({Reason.TIMEOUT, Reason.IDLE_TIMEOUT, Reason.KILLED, Reason.LOST, Reason.NETWORK_ERROR})
"""Failures after which nobody knows whether the work took effect."""
_MISSES = frozenset({Reason.PARSE_ERROR, Reason.VALIDATION_ERROR})
_QUOTA_MS = 3_600_000


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One failure to add: to the n-th dispatch of the step's work, to an item's first, or to the first of all."""

    text: str
    reason: Reason
    step: str
    nth: int | None = None
    item: bytes | None = None

    def fits(self, request: Request, dispatched: int) -> bool:
        """Tell whether the fault strikes this dispatch, the `dispatched`-th of the step's work units."""
        if request.job.step_id != self.step:
            return False
        if self.nth is not None:
            return dispatched == self.nth
        return self.item is None or self.item == request.item_json

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
    name, at, where = text.partition("@")
    step, colon, which = where.partition(":")
    if not at or not name or not step or (colon and not which):
        raise UsageError("invalid-fault", f"'{text}' is no fault", _FORM)
    reasons = [str(reason) for reason in Reason]
    if name not in reasons:
        raise UsageError("unknown-reason", f"'{name}' is no reason to fail", suggest(name, reasons) or _FORM)
    steps = [spec.id for spec in plan.steps if spec.route is None]
    if step not in steps:
        hint = suggest(step, steps) or _FORM
        raise UsageError("unknown-step", f"the workflow has no step '{step}' that does work", hint)
    number = int(which) if which.isascii() and which.isdigit() else None
    if number == 0:
        raise UsageError("invalid-fault", f"'{text}': dispatches count from 1", _FORM)
    item = _item(which) if which and number is None else None
    return Fault(text=text, reason=Reason(name), step=step, nth=number, item=item)


def _item(text: str) -> bytes:
    try:
        return canon.dumps(canon.loads(text))
    except canon.NotJsonError:
        return canon.dumps(text)
