"""An export as an App: all that reads a run works on it, and nothing that starts, drives or changes one.

Guarantee: the file was verified whole before anything of it is shown; nothing is written into any project.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from interlock.app import App
from interlock.driver.importing import open_export
from interlock.driver.params import NO_PARAMS, ParamsInput
from interlock.errors import UsageError
from interlock.plan.config import Config

if TYPE_CHECKING:
    from interlock.driver.estimating import Preview
    from interlock.store.base import Store


class ExportApp(App):
    """The runs of one export, for reading; `header` is what the file says of itself."""

    def __init__(self, path: str | Path) -> None:
        self._file: Final = Path(path)
        with ExitStack() as stack:
            opened = stack.enter_context(open_export(self._file))
            self._stack: Final = stack.pop_all()
        super().__init__(opened.project, Config())
        self.header: Final = opened.header
        self._reader = opened.store

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

    def preview(self, target: str | Path, params: ParamsInput = NO_PARAMS) -> Preview:
        """Say what going on with the run would do, as far as the export tells."""
        return super().preview(self.find(str(target)), params)

    def _open(self) -> Store:
        message = f"{self._file} is an export, which is for reading only"
        raise UsageError("export-read-only", message, "start a run of the workflow in a project: interlock run FILE")
