"""The Python API behind `import interlock`: run a workflow, check one, or open a project for more.

What these raise is InterlockError and its children (see `interlock.errors`); each has `code`, `message`, `hint`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interlock.app import App, open_project
from interlock.driver.arguments import checked
from interlock.driver.params import ParamsInput
from interlock.driver.result import Result
from interlock.errors import Diagnostic, InterlockError
from interlock.exported import ExportApp

__all__ = ["App", "Diagnostic", "InterlockError", "Result", "lint", "open", "open_export", "run"]


def open(project: str | Path | None = None) -> App:  # noqa: A001 - `interlock.open(project)` is what a caller writes
    """Open the project whose root is `project`, else the one at or above the current folder. See `open_project`."""
    checked(project=project)
    return open_project(project)


def open_export(path: str | Path, project: str | Path | None = None) -> ExportApp:
    """Open an export for reading; `project` is the root of the project whose workflows it is replayed to."""
    checked(path=path, project=project)
    return ExportApp(path, project)


def run(
    path: str | Path,
    params: Mapping[str, Any] | None = None,
    *,
    project: str | Path | None = None,
    key: str | None = None,
    timeout_s: float | None = None,
) -> Result:
    """Start a run of the workflow file at `path` and drive it to its end, or to where a person must act.

    `params` are JSON values by name. With `key`, the unfinished run of that key, workflow and parameters is
    continued, and a finished one only reported. After `timeout_s` seconds the run is interrupted and can go on
    later; Ctrl-C and SIGTERM do the same while it is driven in the main thread, and `exit_code` is 130 then.
    Raises WorkflowError (ConfigError where the configuration is at fault) with all diagnostics, UsageError for
    wrong parameters and arguments of wrong types, StoreError.
    """
    checked(path=path, params=params, project=project, key=key, timeout_s=timeout_s)
    with open_project(project) as app:
        return app.run_file(Path(path), ParamsInput(values=params), key=key, timeout_s=timeout_s)


def lint(*paths: str | Path, project: str | Path | None = None) -> list[Diagnostic]:
    """Check workflow files, and those below folders; save nothing. Returns errors, warnings and notices, sorted by place."""
    checked(paths=paths, project=project)
    with open_project(project) as app:
        return app.lint([Path(path) for path in paths])
