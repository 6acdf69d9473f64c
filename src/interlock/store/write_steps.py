"""Steps and runs move, and only as the tables in `model/states.py` allow.

Guarantee: `completed` is written in one place, and in the transaction that saw each stage of the step's gate pass this
very artifact (`gate_missing`) and no unit that can still move. The artifact's hash is checked against its content.
"""

from __future__ import annotations

from typing import Final

from interlock.model import events as ev
from interlock.model.canon import sha256
from interlock.model.states import RUN_ENDED, RUN_MOVES, STEP_ENDED, STEP_MOVES, RunState, StepState
from interlock.store.artifacts import INLINE_MAX_BYTES
from interlock.store.batch import Batch, RuleError
from interlock.store.meta import to_json

_ABSENT: Final = (None, sha256(b"null"))
"""What the hash of an absent artifact may be."""
_BEGUN: Final = frozenset({StepState.RUNNING, StepState.GATING, StepState.WAITING, StepState.BLOCKED})


def step_state(batch: Batch, step: int) -> StepState:
    """The step's state as it stands."""
    row = batch.row("step_state", batch.seq, step)
    if row is None:
        raise RuleError("illegal-move", f"there is no step {step}")
    return StepState(row[0])


def to_step_state(batch: Batch, step: int, state: StepState) -> StepState:
    """Check that the step may move to `state`; return where it stands."""
    batch.need_active("a change of a step")
    old = step_state(batch, step)
    if state not in STEP_MOVES[old]:
        raise RuleError("illegal-move", f"step {step} cannot move from {old.value} to {state.value}")
    return old


def move_steps(batch: Batch, group: list[ev.StepMoved]) -> None:
    """Move steps; completion goes through its gate."""
    for event in group:
        old = to_step_state(batch, event.step, event.state)
        if event.state is StepState.COMPLETED:
            _complete(batch, event, old)
        else:
            batch.one(
                "move_step",
                event.state.value,
                event.reason,
                event.detail,
                event.at if event.state in _BEGUN else None,
                event.at if event.state in STEP_ENDED else None,
                batch.seq,
                event.step,
                old.value,
            )
        batch.log_event(event)


def _complete(batch: Batch, event: ev.StepMoved, old: StepState) -> None:
    artifact = event.artifact
    honest = event.artifact_hash in _ABSENT if artifact is None else event.artifact_hash == sha256(artifact)
    if not honest:
        raise RuleError("artifact-hash", f"the artifact of step {event.step} does not match its hash")
    missing = batch.row("gate_missing", batch.seq, event.step, event.artifact_hash)
    if missing is not None:
        stage, index = missing
        what = "this artifact" if index < 0 else f"the result of item {index}"
        raise RuleError("gate-not-passed", f"step {event.step} cannot complete: its {stage} has not passed {what}")
    size = None if artifact is None else len(artifact)
    inline = artifact if size is not None and size <= INLINE_MAX_BYTES else None
    completed = batch.one(
        "complete_step",
        event.reason,
        event.detail,
        inline,
        event.artifact_hash,
        size,
        to_json(event.route),
        event.at,
        event.at,
        batch.seq,
        event.step,
        old.value,
    )
    if completed == 0:
        raise RuleError("units-open", f"step {event.step} cannot complete: some of its units have not ended")


def move_runs(batch: Batch, group: list[ev.RunMoved]) -> None:
    """Move the run; an active run that stays active only counts its driven time."""
    for event in group:
        old, new = batch.state, event.state
        if not (old is new is RunState.ACTIVE) and new not in RUN_MOVES[old]:
            raise RuleError("illegal-move", f"the run cannot move from {old.value} to {new.value}")
        if new is RunState.COMPLETED and batch.row("unfinished_steps", batch.seq)[0]:
            raise RuleError("steps-open", "the run cannot complete: some of its steps have not")
        batch.one(
            "move_run",
            new.value,
            event.reason,
            event.detail,
            event.outcome,
            event.wait_until,
            event.driven_ms,
            event.at if new in RUN_ENDED else None,
            batch.seq,
            old.value,
        )
        batch.state = new
        batch.log_event(event)
