"""What a test sees of a replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from interlock.api import App, open_export
from interlock.api import open as open_project
from interlock.driver.arguments import checked
from interlock.driver.params import ParamsInput
from interlock.driver.project import find_project
from interlock.driver.replay.report import Replay
from interlock.errors import UsageError


class ReplayedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step: its state, its artifact as a value, and why it is not completed."""

    state: str
    artifact: Any
    reason: str | None


class Replayed:
    """A replayed run. `steps` is by step id, `units` by unit id (their states), `differences` what is not as recorded."""

    def __init__(self, found: Replay) -> None:
        self.state = found.state
        self.outcome = found.outcome
        self.exit_code = found.run_exit_code
        self.steps = {
            step.id: ReplayedStep(
                state=step.state,
                artifact=None if step.artifact is None else msgspec.json.decode(step.artifact),
                reason=step.reason,
            )
            for step in found.steps
        }
        self.units = {unit.id: unit.state for unit in found.units}
        self.not_recorded = found.not_recorded
        self.changed_inputs = found.changed
        self.faults_unused = found.faults_unused
        """The faults that no dispatch met, each with why."""
        self.differences = found.differences

    def assert_same(self) -> None:
        """Fail the test unless the replay came out as the recorded run did, and every fault met a dispatch."""
        told = [
            *self.differences,
            *(f"no dispatch met the fault {text}: {why}" for text, why in self.faults_unused.items()),
        ]
        if told:
            raise AssertionError("the replay is not as recorded:\n  " + "\n  ".join(told))


def replay_recording(
    recording: str | Path | tuple[str | Path, str],
    folder: Path,
    *,
    workflow: str | Path | None = None,
    faults: str | Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
) -> Replayed:
    """Replay the run of an export file, or `(project, run)`: an id, its beginning, or `last`, in a project's journal.

    Relative paths are seen from `folder`. With an export, `workflow` is compiled as part of the project around it.
    """
    checked(workflow=workflow, params=params)
    file = None if workflow is None else folder / workflow
    faults = [faults] if isinstance(faults, str) else faults
    with _opened(recording, folder, file) as (app, run):
        found = app.replay(
            app.find(run), workflow=file, faults=faults, params=None if params is None else ParamsInput(values=params)
        )
    return Replayed(found)


@contextmanager
def _opened(recording: object, folder: Path, workflow: Path | None) -> Iterator[tuple[App, str]]:
    match recording:
        case str() | Path():
            project = None if workflow is None else find_project(workflow.parent).root
            with open_export(folder / recording, project) as app:
                yield app, "last"
        case (str() | Path() as project, str(run)):
            with open_project(folder / project) as app:
                yield app, run
        case _:
            hint = "give the path of an export, or a pair: (project folder, run id or 'last')"
            raise UsageError("unknown-recording", f"{recording!r} is no recording", hint)
