"""`replay RUN --json`: what was replayed, what differs from the record, and what the record could not answer."""

from __future__ import annotations

from typing import Any

from interlock.driver.replay.report import Replay
from interlock.views.values import SCHEMA


def replay_view(found: Replay) -> dict[str, Any]:
    """The replay as one object."""
    return {
        "schema": SCHEMA,
        "run": {"id": found.run_id, "state": found.state, "outcome": found.outcome, "reason": found.reason},
        "same": not found.differences,
        "exit_code": found.exit_code,
        "steps": [
            {
                "id": step.id,
                "same": step.same,
                "state": step.state,
                "reason": step.reason,
                "artifact_hash": step.artifact_hash,
                "recorded": {
                    "state": step.recorded_state,
                    "reason": step.recorded_reason,
                    "artifact_hash": step.recorded_hash,
                },
            }
            for step in found.steps
        ],
        "units": {
            "answered": found.answered,
            "faulted": found.faulted,
            "not_recorded": found.not_recorded,
            "changed_inputs": list(found.changed),
        },
        "faults_unused": list(found.faults_unused),
        "differences": list(found.differences),
    }
