"""Reports of the executor to events of the journal, one by one: each is applied before the next is made."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence

from interlock.decide.outcome import record
from interlock.dispatch.base import EnvAudit, Outcome, Report, Started
from interlock.model import events as ev
from interlock.model.run import Snapshot, Step, Unit

Inflight = MutableMapping[str, tuple[Step, Unit]]
"""Started attempts without an end, by dispatch id."""


def recorded(
    snap: Snapshot, inflight: Inflight, reports: Sequence[Report], wall_ms: int, steady_ms: int
) -> Iterator[ev.Event]:
    """Yield what the reports change; ended attempts leave `inflight`. Backoff counts from `steady_ms`."""
    ended = {report.dispatch for report in reports if type(report) is Outcome}
    for report in reports:
        if type(report) is Outcome:
            placed = inflight.pop(report.dispatch, None)
            if placed is not None:
                yield from record(snap, *placed, report, steady_ms)
                yield from _notices(snap, report, placed[0], wall_ms)
        elif type(report) is Started:
            if report.dispatch not in ended and report.dispatch in inflight:
                yield _started(inflight, report, wall_ms)
        elif type(report) is EnvAudit:
            yield ev.EnvResolved(at=wall_ms, step=report.step, names=report.names)
            for text in report.warnings:
                if f"env:{text}" not in snap.noticed:
                    yield ev.Notice(at=wall_ms, code=f"env:{text}", text=text, step=report.step)


def _notices(snap: Snapshot, ended: Outcome, step: Step, wall_ms: int) -> Iterator[ev.Event]:
    """Say what an engine could not honour, once a run."""
    for text in ended.notices:
        if text not in snap.noticed:
            yield ev.Notice(at=wall_ms, code=text, text=text, step=step.index)


def _started(inflight: Inflight, report: Started, wall_ms: int) -> ev.AttemptStarted:
    step, unit = inflight[report.dispatch]
    return ev.AttemptStarted(
        at=wall_ms,
        step=step.index,
        unit=unit.ordinal,
        number=unit.attempt,
        dispatch=report.dispatch,
        process=report.process,
    )
