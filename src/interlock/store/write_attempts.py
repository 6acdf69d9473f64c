"""Reserve, start and finish: the three writes of an attempt, each with its unit and its event.

Guarantees: a reservation takes a unit that is pending or waiting and its next number, or nothing is written; an
end is written once, where dispatch id and open attempt match, and moves the unit only while the attempt is its
last. These writes are the engine's hot path: one prepared statement for all events of a kind, no reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from interlock.model import events as ev
from interlock.model.states import UnitState
from interlock.store.batch import Batch, RuleError, ShortError
from interlock.store.meta import ENCODERS, TYPES

_NO_PROCESS: Final = (None, None, None)
_NO_USAGE: Final = ev.Usage()
_NO_ANSWER: Final = ev.Answered()
_NO_LOG: Final = (None, None)
_COMPLETED: Final = UnitState.COMPLETED
_FAILED: Final = UnitState.FAILED
_WAITING: Final = UnitState.WAITING
_NEVER: Final = (UnitState.RUNNING, UnitState.NOT_RUN)
Late = TypeVar("Late", ev.AttemptStarted, ev.AttemptFinished)


def reserve(batch: Batch, group: list[ev.AttemptReserved]) -> None:
    """Insert the attempts and set their units running."""
    batch.need_active("a reservation")
    seq = batch.seq
    units = [(e.number, e.dispatch, e.at, seq, e.step, e.unit, e.number - 1) for e in group]
    if batch.many("reserve_unit", units) != len(group):
        raise RuleError(
            "illegal-move",
            f"a reservation in step {', '.join(map(str, sorted({e.step for e in group})))} is refused: "
            "a unit is neither pending nor waiting, the attempt's number is not its next, or a person is asked",
        )
    rows = [
        (seq, e.step, e.unit, e.number, e.dispatch, *_process(e), e.engine, e.model, e.reserve_tokens, e.at)
        for e in group
    ]
    batch.many("reserve_attempt", rows)
    planted = [e for e in group if e.worktree is not None]
    if planted:
        batch.many("plant_attempt", [(e.worktree, e.base, seq, e.step, e.unit, e.number) for e in planted])
        batch.many("plant_unit", [(e.worktree, seq, e.step, e.unit) for e in planted])
    _log(batch, group)


def start(batch: Batch, group: list[ev.AttemptStarted]) -> None:
    """Record the processes."""
    seq = batch.seq
    _log(
        batch,
        _found(
            batch, "start_attempt", group, lambda e: (*_process(e), e.at, seq, e.step, e.unit, e.number, e.dispatch)
        ),
    )


def finish(batch: Batch, group: list[ev.AttemptFinished]) -> None:
    """Write the ends, and what they mean for the units."""
    seq = batch.seq
    for event in group:
        if event.unit_state in _NEVER:
            raise RuleError("illegal-move", f"the end of an attempt cannot leave its unit {event.unit_state.value}")
    taken = _found(batch, "finish_attempt", group, lambda e: _end(seq, e))
    told = [_told(seq, e) for e in taken if e.usage is not None or e.answered is not None]
    if told:
        batch.many("use_attempt", told)
    for event in taken:
        if event.tree is not None:
            _leave(batch, event, event.tree)
    batch.many("finish_unit", [_unit_end(seq, e) for e in taken])
    _log(batch, taken)


def _leave(batch: Batch, e: ev.AttemptFinished, tree: ev.Tree) -> None:
    """What only an attempt in a worktree has; to be written while its unit still runs."""
    attempt = (batch.seq, e.step, e.unit, e.number)
    batch.one("leave_attempt", tree.base, tree.ref, tree.commit, *attempt, e.dispatch)
    batch.one("leave_unit", tree.base, tree.commit or tree.base, *attempt)


def _found(batch: Batch, query: str, group: list[Late], row: Callable[[Late], tuple[object, ...]]) -> list[Late]:
    """Run the statement for all events and return those that met their open attempt."""
    if not batch.careful:
        if batch.many(query, [row(event) for event in group]) != len(group):
            raise ShortError
        return group
    taken = []
    for event in group:
        if batch.one(query, *row(event)):
            taken.append(event)
        else:
            batch.refused.append(event.dispatch)
    return taken


def _process(event: ev.AttemptReserved | ev.AttemptStarted | ev.AttemptFinished) -> tuple[object, ...]:
    process = event.process
    return (process.pid, process.start_ticks, process.boot_id) if process else _NO_PROCESS


def _end(seq: int, e: ev.AttemptFinished) -> tuple[object, ...]:
    log = e.log
    return (
        e.state.value,
        e.reason.value if e.reason else None,
        e.error,
        e.exit_code,
        *_process(e),
        *((log.offset, log.length) if log else _NO_LOG),
        e.started_at,
        e.at,
        seq,
        e.step,
        e.unit,
        e.number,
        e.dispatch,
    )


def _told(seq: int, e: ev.AttemptFinished) -> tuple[object, ...]:
    """What only an engine's answer has."""
    usage, answered = e.usage or _NO_USAGE, e.answered or _NO_ANSWER
    return (
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.reasoning_tokens,
        usage.cost_usd,
        usage.estimated,
        answered.model,
        answered.session,
        answered.request_id,
        seq,
        e.step,
        e.unit,
        e.number,
        e.dispatch,
    )


def _unit_end(seq: int, e: ev.AttemptFinished) -> tuple[object, ...]:
    state = e.unit_state
    return (
        state.value,
        e.retries,
        e.asks,
        e.reason.value if e.reason else None,
        e.error,
        e.result,
        e.verdict,
        e.not_before if state is _WAITING else None,
        e.answered.session if e.answered else None,
        e.started_at,
        e.at if state is _COMPLETED or state is _FAILED else None,
        seq,
        e.step,
        e.unit,
        e.number,
    )


def _log(batch: Batch, group: list[ev.AttemptReserved] | list[ev.AttemptStarted] | list[ev.AttemptFinished]) -> None:
    if group:
        name, data = TYPES[type(group[0])], ENCODERS[type(group[0])]
        batch.log([(e.at, name, e.step, e.unit, data(e)) for e in group])
