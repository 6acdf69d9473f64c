"""Units come into being, stop, and are moved by a person or a probe.

Guarantees: a new round or loop takes the place of the units it stands for in the census; a hundred thousand units
stream into the table without a second copy; no unit whose attempt is open is moved by anything but its end.
"""

from __future__ import annotations

from collections.abc import Iterator

from interlock.model import events as ev
from interlock.model.states import UNIT_ENDED, UNIT_MOVES, StepState, UnitState
from interlock.store.batch import Batch, RuleError
from interlock.store.meta import ENCODERS, TYPES, UNITS_LISTED, to_json, unit_lists
from interlock.store.write_steps import step_state, to_step_state


def start_step(batch: Batch, group: list[ev.StepStarted]) -> None:
    """Set the step running in this round and loop, with its work units."""
    for event in group:
        old = to_step_state(batch, event.step, StepState.RUNNING)
        row = batch.row("step_state", batch.seq, event.step)
        if (event.round, event.loop) < (row[1], row[2]):
            raise RuleError("illegal-move", f"step {event.step} is already in round {row[1]}, loop {row[2]}")
        batch.one("start_step", event.round, event.loop, event.at, batch.seq, event.step, old.value)
        _insert(batch, event, "work", 1)
        if event.units and event.units[0].ordinal > 0:
            batch.one("supersede_units", batch.seq, event.step, event.units[0].ordinal)


def add_units(batch: Batch, group: list[ev.UnitsAdded]) -> None:
    """Insert units that ask (gate, judge, approval, probe) and move the step where it asks."""
    for event in group:
        if event.kind == "work":
            raise RuleError("illegal-move", "work units come into being with their step's start only")
        old = step_state(batch, event.step)
        if old is not event.state:
            to_step_state(batch, event.step, event.state)
        batch.need_active("a question")
        batch.one("ask_step", event.state.value, event.at, batch.seq, event.step, old.value)
        _insert(batch, event, event.kind, 0)


def _insert(batch: Batch, event: ev.StepStarted | ev.UnitsAdded, kind: str, counted: int) -> None:
    batch.many("insert_unit", _rows(batch.seq, event, kind, counted))
    batch.many("take_over_unit", _taken(batch.seq, event))
    name = TYPES[type(event)]
    batch.log([(event.at, name, event.step, None, ENCODERS[type(event)](event))])
    for data in unit_lists(event.units):
        batch.log([(event.at, UNITS_LISTED, event.step, None, data)])
        batch.flush()


def _rows(seq: int, event: ev.StepStarted | ev.UnitsAdded, kind: str, counted: int) -> Iterator[tuple[object, ...]]:
    step, round_, loop = event.step, event.round, event.loop
    for new in event.units:
        yield (
            seq,
            step,
            new.ordinal,
            kind,
            counted,
            round_,
            loop,
            new.index,
            new.id,
            new.subject,
            new.input_hash,
            new.session,
            new.base,
            new.worktree,
            new.feedback,
            new.item,
        )


def _taken(seq: int, event: ev.StepStarted | ev.UnitsAdded) -> Iterator[tuple[object, ...]]:
    """Yield what a fork's units were born with; they have ended before anything could be dispatched."""
    for new in event.units:
        if new.reused is not None:
            old = new.reused
            ended = (old.state.value, old.reason, old.verdict, old.result, to_json(old.origin), event.at, old.left)
            yield (*ended, seq, event.step, new.ordinal)


def stop_units(batch: Batch, group: list[ev.UnitsStopped]) -> None:
    """End what has not begun: waiting units fail with their reason, pending ones are not run."""
    for event in group:
        row = batch.row("step_state", batch.seq, event.step)
        if row is None:
            raise RuleError("illegal-move", f"there is no step {event.step}")
        place = (batch.seq, event.step, row[1], row[2])
        batch.one("fail_waiting_units", event.at, *place)
        batch.one("drop_pending_units", event.reason, event.at, *place)
        batch.log_event(event)


def move_units(batch: Batch, group: list[ev.UnitMoved]) -> None:
    """Move single units by the table of moves; a running unit moves by its attempt's end only."""
    for event in group:
        row = batch.row("unit_state", batch.seq, event.step, event.unit)
        old = UnitState(row[0]) if row else None
        legal = old is not None and old is not UnitState.RUNNING and event.state in UNIT_MOVES[old]
        if not legal or event.state in (UnitState.RUNNING, UnitState.WAITING, UnitState.UNKNOWN):
            raise RuleError(
                "illegal-move",
                f"unit {event.unit} of step {event.step} cannot move from {old.value if old else 'nowhere'} "
                f"to {event.state.value}",
            )
        ended = event.at if event.state in UNIT_ENDED else None
        said = (event.state.value, event.reason, event.error, event.result, ended)
        batch.one("move_unit", *said, batch.seq, event.step, event.unit, row[0])
        batch.log_event(event)
