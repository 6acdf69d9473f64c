"""What people ask of the runs that one loop drives: answered by the run itself, with those below it, or for it.

Guarantee: each request that the journal holds of any run of the family gets an answer, whatever became of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from interlock.decide.reopen import grant
from interlock.driver.family import Family
from interlock.driver.member import OVER, Member, Moment, above_ended
from interlock.errors import StoreError
from interlock.model import events as ev
from interlock.model.states import RUN_ENDED
from interlock.store.base import RequestRow, Store


def answer(family: Family, store: Store, row: RequestRow, moment: Moment) -> None:
    """Carry out what was asked, and journal what came of it. Raises StoreError."""
    member = next((one for one in family if one.snap.run.id == row.run_id), None)
    if member is None:
        applied = ev.RequestApplied(at=moment.wall_ms, request=row.id, outcome=_why_not(store, row.run_id))
        family.note(row.run_id, applied)
    elif row.kind == "loops" and member.snap.run.state not in OVER:
        outcome = "applied" if _grant(family, member, row, moment) else "no rejected step here can loop"
        member.add((ev.RequestApplied(at=moment.wall_ms, request=row.id, outcome=outcome),))
    else:
        member.answer(row, moment)


def abandoned(store: Store, run_id: str, requests: Sequence[int], at: int) -> list[ev.Event]:
    """Return the answers to all who asked for the run to be abandoned, also to those who did since the first."""
    asked = dict.fromkeys(requests)
    with suppress(StoreError):
        asked.update((row.id, None) for row in store.requests(run_id) if row.kind == "abandon")
    return [ev.RequestApplied(at=at, request=one, outcome="applied") for one in asked]


def _grant(family: Family, member: Member, row: RequestRow, moment: Moment) -> bool:
    """Give loops to the run and to those below it; tell whether one of them took any."""
    loops: int = msgspec.json.decode(row.payload_json)["loops"]
    took = False
    for one in family.below(member):
        events = grant(one.snap, one.now(moment), loops) if one.ended_above() is None else []
        one.add(events)
        took |= bool(events)
    return took


def _why_not(store: Store, run_id: str) -> str:
    """Say why nothing can be asked of a child run that is not under way."""
    run = above = store.run(run_id)
    if run.state in OVER:
        return f"the run is {run.state}"
    ended = None
    while above.parent is not None:
        above = store.run(above.parent)
        ended = above if above.state in RUN_ENDED else ended
    if ended is not None and ended.root is None:
        return above_ended(ended.id, ended.state)
    who, said = ("the run", run.state) if ended is None else (f"run {ended.id} above it", ended.state)
    return f"{who} {said}, and goes on only if it is tried again with run {run.family}"
