"""One step's artifact, whole: as it was promoted, or as it stands before its gate."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from interlock.app import App
from interlock.cli.census_text import ending
from interlock.cli.text import safe_lines
from interlock.decide.reduce import Artifact, reduce_step
from interlock.errors import UsageError
from interlock.model.states import RUN_ENDED, RunState, StepState, UnitState
from interlock.store.base import RunRow, StepRow

_WITHOUT_WORK: Final = frozenset({StepState.PENDING, StepState.SKIPPED})


def show_artifact(app: App, run_id: str, step_id: str, *, as_json: bool) -> None:
    """Print the artifact: text as it is, anything else as indented JSON; on a terminal made fit for one."""
    raw = _artifact(app, run_id, step_id)
    decoded = msgspec.json.decode(raw)
    as_it_is = isinstance(decoded, str) and not as_json
    text = decoded if as_it_is else msgspec.json.format(raw, indent=2).decode()
    if sys.stdout.isatty():
        text = safe_lines(text)
    # lone surrogates cannot stand in an artifact, so this always can be encoded
    sys.stdout.buffer.write(text.encode() + b"\n")


def _artifact(app: App, run_id: str, step_id: str) -> bytes:
    rows = {row.id: row for row in app.store.steps(run_id)}
    row = rows.get(step_id)
    if row is None:
        from interlock.plan.diagnose import suggest  # noqa: PLC0415 - only a typing slip needs it

        raise UsageError("unknown-step", f"the run has no step '{step_id}'", suggest(step_id, list(rows)))
    if row.state == StepState.COMPLETED:
        return app.store.artifact(run_id, row.step) or b"null"
    if row.state not in _WITHOUT_WORK and (made := _before_its_gate(app, run_id, row.step)) is not None:
        return made
    run = app.store.run(run_id)
    raise UsageError("no-artifact", f"step '{step_id}' {_why_none(row, run)}", f"see interlock status {run_id}")


def _before_its_gate(app: App, run_id: str, index: int) -> bytes | None:
    """Return what the journaled results come to of a step that hasn't passed; None where one of them is missing."""
    snap, _ = app.snapshot(run_id)
    step = snap.steps[index]
    if not step.settled or step.counts[UnitState.NOT_RUN]:
        return None
    made = reduce_step(snap.plan.steps[index], step, snap.plan.limits.max_artifact_bytes)
    return made.json or b"null" if isinstance(made, Artifact) else None


def _why_none(row: StepRow, run: RunRow) -> str:
    reason = f" ({row.reason})" if row.reason else ""
    if row.state == StepState.SKIPPED:
        return f"was skipped{reason}, so it has no artifact"
    if row.state == StepState.FAILED:
        return f"failed{reason} and has no artifact"
    if run.state in RUN_ENDED:
        was = "was " if run.state == RunState.ABANDONED else ""
        return f"never began, since the run {was}{ending(run.state, run.outcome, run.reason)}; it has no artifact"
    if row.state == StepState.PENDING:
        return "has not begun, so it has no artifact yet"
    return f"is {row.state}{reason} and has no artifact yet"
