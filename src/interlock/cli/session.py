"""What one invocation shares: the project that was asked for and its App, opened when first needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.cli.output import note
from interlock.errors import UsageError

if TYPE_CHECKING:
    from interlock.app import App


def _open_export(source: Path, project: Path | None) -> App:
    from interlock.exported import ExportApp  # noqa: PLC0415 - most calls read a journal

    return ExportApp(source, project)


def _open(project: Path | None) -> App:
    from interlock.app import open_project  # noqa: PLC0415 - help needs no engine

    app = open_project(project)
    for notice in app.project.notices:
        note(f"note: {notice}")
    return app


class Session:
    """Opens the App once and closes it at the end."""

    def __init__(self, opener: Callable[[Path | None], App] = _open) -> None:
        self.project: Path | None = None
        self.source: Path | None = None
        self.command = ""
        self._opener = opener
        self._app: App | None = None

    @property
    def app(self) -> App:
        """The engine, opened on first use."""
        if self._app is None:
            self._app = self._opener(self.project) if self.source is None else _open_export(self.source, self.project)
        return self._app

    def find(self, text: str) -> str:
        """The full id of the run that `text` names."""
        if not text.strip():
            raise UsageError(
                "blank-id", "the run id is blank", "give an id, its beginning, or `last`; see `interlock list`"
            )
        return self.app.find(text.strip())

    def refuse_following(self, *, follow: bool) -> None:
        """An export is as long as it is."""
        if follow and self.source is not None:
            raise UsageError("export-never-grows", f"{self.source} is an export; it never grows", "leave out --follow")

    def close(self) -> None:
        """Close what was opened."""
        if self._app is not None:
            self._app.close()
