"""One step's artifact, whole: as it was promoted, or as it stands before its gate."""

from __future__ import annotations

import sys

import msgspec

from interlock.app import App
from interlock.cli.text import safe_lines
from interlock.decide.reduce import Artifact, reduce_step
from interlock.errors import UsageError
from interlock.model.states import StepState


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
    # before its gate has passed, a step's artifact is what its units' journaled results come to
    snap, _ = app.snapshot(run_id)
    step = snap.steps[row.step]
    made = reduce_step(snap.plan.steps[row.step], step, snap.plan.limits.max_artifact_bytes) if step.settled else None
    if step.work and isinstance(made, Artifact):
        return made.json or b"null"
    raise UsageError(
        "no-artifact", f"step '{step_id}' is {row.state} and has made nothing yet", f"see interlock status {run_id}"
    )
