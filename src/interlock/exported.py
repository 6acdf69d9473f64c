"""An export as an App: all that reads a run works on it, and nothing that starts, drives or changes one.

Guarantee: the file was verified whole before anything of it is shown; nothing is written into any project. A replay of
an exported run needs no project, and one with another workflow compiles it as its own project would.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from interlock.app import App, OnWarning, open_project
from interlock.driver.arguments import checking
from interlock.driver.export.importing import OpenExport, open_export
from interlock.driver.params import NO_PARAMS, GivenParams
from interlock.errors import UsageError
from interlock.model.states import RunState
from interlock.plan.config import Config

if TYPE_CHECKING:
    from interlock.driver.estimating import Preview
    from interlock.driver.replay.report import Replay
    from interlock.driver.result import Result
    from interlock.model.plan import Plan
    from interlock.store.base import Store


@checking
class ExportApp(App):
    """The runs of one export, for reading; `header` is what the file says of itself.

    `project` is the root of the project whose workflows they are replayed to, else the one at or above the current
    folder.
    """

    def __init__(self, path: str | Path, project: str | Path | None = None) -> None:
        self._file: Final = Path(path)
        self._home: Final = project
        with ExitStack() as stack:
            opened: OpenExport = stack.enter_context(open_export(self._file))
            self._stack: Final = stack.pop_all()
        super().__init__(opened.project, Config())
        self.header: Final = opened.header
        self._opened.here.reader = opened.store

    @property
    def store(self) -> Store:
        """The journal that was unpacked. Raises UsageError once it is closed."""
        if not self.project.root.is_dir():
            message = f"the export {self._file} was closed"
            raise UsageError("export-closed", message, "open it again: interlock.open_export(FILE)")
        return super().store

    def close(self) -> None:
        """Close, and remove what was unpacked. Idempotent."""
        super().close()
        self._stack.close()

    def find(self, text: str) -> str:
        """As in a project; `last` is the run that was exported, not one of its child runs."""
        if text == "last":
            return self.header.run
        found = self.store.match(text)
        if not found:
            runs = ", ".join(self.header.runs[:3])
            raise UsageError("run-not-found", f"no run '{text}' in {self._file}", f"it holds {runs}")
        return super().find(text)

    def driven(self, run_id: str) -> bool:  # noqa: ARG002 - none of them is
        """Nobody drives an export, whatever its lease said when it was made."""
        return False

    def run_file(self, path: str | Path, *_args: Any, **_settings: Any) -> Result:  # noqa: ANN401, ARG002 - whatever is asked
        """Refuse, before the file is looked at."""
        self._refuse()

    def preview(
        self, target: str | Path, params: GivenParams = NO_PARAMS, *, on_warning: OnWarning | None = None
    ) -> Preview:
        """Say what going on with the run would do, as far as the export tells."""
        return super().preview(self.find(str(target)), params, on_warning=on_warning)

    def replay(
        self,
        run_id: str,
        *,
        workflow: str | Path | None = None,
        faults: Sequence[str] = (),
        params: GivenParams | None = None,
    ) -> Replay:
        """As in a project; a run that was exported before its end can only be exported again."""
        if self.store.run(run_id).state == RunState.ACTIVE:
            message = f"run {run_id} had not come to an end when {self._file} was made, so its record is not whole"
            raise UsageError("run-active", message, f"export it again when it has ended: interlock export {run_id}")
        return super().replay(run_id, workflow=workflow, faults=faults, params=params)

    def _compile(self, path: str | Path, on_warning: OnWarning | None) -> Plan:
        from interlock.driver.compiling import require_plan  # noqa: PLC0415 - heavy: YAML, CommonMark

        with open_project(self._home) as app:
            return require_plan(Path(path), app.project, app.config, on_warning)

    def _open(self) -> Store:
        self._refuse()

    def _refuse(self) -> NoReturn:
        message = f"{self._file} is an export, which is for reading only"
        raise UsageError("export-read-only", message, "start a run of the workflow in a project: interlock run FILE")
