"""Which writer carries out which event, and the small ones themselves.

Guarantee: events are carried out in order; consecutive events of one type reach their writer together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

from interlock.model import events as ev
from interlock.store.batch import Batch, RuleError
from interlock.store.meta import TYPES
from interlock.store.write_attempts import finish, reserve, start
from interlock.store.write_gates import approve, grant_loops
from interlock.store.write_steps import move_runs, move_steps
from interlock.store.write_units import add_units, move_units, start_step, stop_units


def write(batch: Batch, events: Sequence[ev.Event]) -> None:
    """Carry out the events in order, inside the caller's transaction."""
    for kind, group in groupby(events, type):
        writer = _WRITERS.get(kind)
        if writer is None:
            raise RuleError("unknown-event", f"this journal cannot record the event {TYPES.get(kind, kind.__name__)}")
        writer(batch, list(group))
    batch.flush()


def _raise_budget(batch: Batch, group: list[ev.BudgetRaised]) -> None:
    for event in group:
        batch.one("raise_budget", batch.seq, event.name, event.value)
        batch.log_event(event)


def _park(batch: Batch, group: list[ev.EngineParked]) -> None:
    batch.many("park_engine", [(batch.seq, event.engine, event.until) for event in group])
    _log_only(batch, group)


def _accept(batch: Batch, group: list[ev.ModulesAccepted]) -> None:
    for event in group:
        batch.many("accept_hash", [(batch.seq, name, value) for name, value in event.hashes.items()])
        batch.log_event(event)


def _apply_request(batch: Batch, group: list[ev.RequestApplied]) -> None:
    for event in group:
        if batch.one("apply_request", event.outcome, event.at, event.request, batch.seq) == 0:
            raise RuleError("request-not-open", f"request {event.request} was answered already, or is another run's")
        batch.log_event(event)


def _notice(batch: Batch, group: list[ev.Notice]) -> None:
    batch.many("insert_notice", [(batch.seq, event.code) for event in group])
    _log_only(batch, group)


def _log_only(batch: Batch, group: Sequence[ev.Event]) -> None:
    for event in group:
        batch.log_event(event)


_WRITERS: Final[dict[type, Callable[[Batch, list[Any]], None]]] = {
    ev.StepStarted: start_step,
    ev.UnitsAdded: add_units,
    ev.AttemptReserved: reserve,
    ev.AttemptStarted: start,
    ev.AttemptFinished: finish,
    ev.UnitsStopped: stop_units,
    ev.UnitMoved: move_units,
    ev.StepMoved: move_steps,
    ev.RunMoved: move_runs,
    ev.BudgetRaised: _raise_budget,
    ev.EngineParked: _park,
    ev.Approved: approve,
    ev.LoopsGranted: grant_loops,
    ev.ModulesAccepted: _accept,
    ev.RequestApplied: _apply_request,
    ev.Notice: _notice,
    ev.EnvResolved: _log_only,
    ev.Divergence: _log_only,
}
