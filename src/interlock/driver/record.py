"""Reports of the executor to events of the journal, one by one: each is applied before the next is made."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence

import msgspec

from interlock.decide.endings import block
from interlock.decide.outcome import record
from interlock.decide.quota import parked
from interlock.dispatch.base import EnvAudit, Outcome, Report, Started
from interlock.driver.family import Family
from interlock.driver.holdable import holdable
from interlock.driver.member import Member, Moment, Place
from interlock.errors import StoreError
from interlock.model import events as ev
from interlock.model.run import Snapshot, Step
from interlock.model.states import AttemptState, Reason, StepState, UnitState

Inflight = MutableMapping[str, Place]
"""Started attempts without an end, by dispatch id."""


def recorded(
    family: Family, inflight: Inflight, reports: Sequence[Report], moment: Moment, *, failures: bool = True
) -> Iterator[tuple[Member, ev.Event]]:
    """Yield what the reports change, and in which run; ended attempts leave `inflight`.

    Without `failures` attempts that failed are left open, for the driver that has taken over to close.
    """
    wall_ms = moment.wall_ms
    ended = {report.dispatch for report in reports if type(report) is Outcome}
    for report in reports:
        if type(report) is Outcome:
            place = inflight.pop(report.dispatch, None)
            if place is not None and (failures or report.status != "failed"):
                yield from _ended(family, place, report, moment)
        elif type(report) is Started:
            if report.dispatch not in ended and report.dispatch in inflight:
                place = inflight[report.dispatch]
                yield place.member, _started(place, report, wall_ms)
        elif type(report) is EnvAudit:
            audited = family.find(report.step)
            if audited is not None:
                for event in _audited(audited, report, wall_ms):
                    yield audited, event


def _ended(family: Family, place: Place, report: Outcome, moment: Moment) -> Iterator[tuple[Member, ev.Event]]:
    member, wall_ms, report = place.member, moment.wall_ms, holdable(report)
    for event in record(member.snap, place.step, place.unit, report, moment.at):
        yield member, event
        if type(event) is ev.EngineParked and member is not family.root:
            # one engine is one queue for all of them
            yield family.root, parked(family.root.snap, event.engine, event.until, moment.at)
    if report.module_changed and _may_block(member, place.step):
        yield member, block(place.step, wall_ms, "module_changed", report.error)
    for event in _notices(member.snap, report, place.step, wall_ms):
        yield member, event


def _may_block(member: Member, step: Step) -> bool:
    """Tell whether nobody was faster to say so, and the step is not about to end with its run."""
    return step.state is StepState.RUNNING and member.snap.halted is None


def _audited(member: Member, report: EnvAudit, wall_ms: int) -> Iterator[ev.Event]:
    step = report.step - member.first
    if report.names:
        yield ev.EnvResolved(at=wall_ms, step=step, names=report.names)
    for text in report.warnings:
        if f"env:{text}" not in member.snap.noticed:
            yield ev.Notice(at=wall_ms, code=f"env:{text}", text=text, step=step)


def unwritten(event: ev.AttemptFinished, error: StoreError) -> ev.AttemptFinished:
    """Return what watchers are told of an end that could be written nowhere; the next driver closes the attempt as lost."""
    return msgspec.structs.replace(
        event,
        state=AttemptState.FAILED,
        unit_state=UnitState.FAILED,
        reason=Reason.JOURNAL_WRITE_FAILED,
        error=f"how it ended could not be written: {error.message}",
        result=None,
        verdict=None,
    )


def _notices(snap: Snapshot, ended: Outcome, step: Step, wall_ms: int) -> Iterator[ev.Event]:
    """Say what an engine could not honour, once a run."""
    for text in ended.notices:
        if text not in snap.noticed:
            yield ev.Notice(at=wall_ms, code=text, text=text, step=step.index)


def _started(place: Place, report: Started, wall_ms: int) -> ev.AttemptStarted:
    return ev.AttemptStarted(
        at=wall_ms,
        step=place.step.index,
        unit=place.unit.ordinal,
        number=place.unit.attempt,
        dispatch=report.dispatch,
        process=report.process,
    )
