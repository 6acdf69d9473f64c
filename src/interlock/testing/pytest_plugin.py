"""The pytest plugin: `interlock_replay` makes a recorded run a test of a workflow.

It brings nothing but one fixture, and loads the engine when the fixture is called. Relative paths are seen from the
folder of the test's file, so that a recording lies beside its test and pytest may be called from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from interlock.testing.replayed import Replayed


@pytest.fixture
def interlock_replay(request: pytest.FixtureRequest) -> Callable[..., Replayed]:
    """Replay a recorded run: `interlock_replay("run.export.gz", workflow=..., faults=[...], params={...})`.

    In place of an export, `(project, run_id)` names a run in a project's journal.
    """
    folder = request.path.parent

    def call(
        recording: str | Path | tuple[str | Path, str],
        *,
        workflow: str | Path | None = None,
        faults: str | Sequence[str] = (),
        params: Mapping[str, Any] | None = None,
    ) -> Replayed:
        from interlock.testing.replayed import replay_recording  # noqa: PLC0415 - heavy, and not every test replays

        return replay_recording(recording, folder, workflow=workflow, faults=faults, params=params)

    return call
