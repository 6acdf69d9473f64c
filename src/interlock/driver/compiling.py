"""Workflow file -> plan: reading, compiling and resolving in one call; what can't be read is a diagnostic."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from interlock.driver.project import ProjectPaths, current_folder, seen
from interlock.driver.sources import MOST_WORKFLOW_BYTES, FileSources
from interlock.errors import Diagnostic, WorkflowError
from interlock.model.plan import Plan
from interlock.model.workflow import Place
from interlock.plan.compile import compile_workflow
from interlock.plan.config import Config
from interlock.plan.diagnose import Source, did_you_mean
from interlock.plan.resolve import resolve


def load_workflow(path: Path, project: ProjectPaths, config: Config) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """Return the plan of the workflow at `path`, None when a diagnostic is an error. Writes nothing.

    There is none under a configuration that has faults either; what only follows from these is not told.
    """
    seen = path if path.is_absolute() else current_folder() / path
    # links that lead in a circle are told by who reads the file
    text = _unnamable(Path(os.path.realpath(seen)), project.root) or _read(path)
    if isinstance(text, Source):
        return None, text.diagnostics()
    sources = FileSources(path, project)
    sources.ask_ahead()
    try:
        compiled = compile_workflow(text, str(path))
        if compiled.sound is None:
            return None, compiled.diagnostics
        resolved = resolve(compiled.sound, config, sources)
    finally:
        sources.forget()
    plan = None if compiled.workflow is None else resolved.plan
    return plan, tuple(sorted({*compiled.diagnostics, *resolved.diagnostics}))


def require_plan(
    path: Path, project: ProjectPaths, config: Config, on_warning: Callable[[Diagnostic], None] | None = None
) -> Plan:
    """Return the plan of the workflow at `path`; `on_warning` gets its warnings and notices.

    Raises WorkflowError with every diagnostic when one is an error.
    """
    plan, diagnostics = load_workflow(path, project, config)
    if plan is None:
        raise WorkflowError(diagnostics)
    if on_warning is not None:
        for diagnostic in diagnostics:
            on_warning(diagnostic)
    return plan


def _unnamable(path: Path, root: Path) -> Source | None:
    """Refuse a path that is not UTF-8: it is part of the plan, which is JSON."""
    for place in (path, root):
        if os.fsencode(place) != str(place).encode("utf-8", "replace"):
            shown = os.fsencode(place).decode("utf-8", "replace")
            source = Source(os.fsencode(path).decode("utf-8", "replace"), ())
            message = f"the path {shown} is not UTF-8"
            source.error(Place(line=1, column=1), "path-not-utf8", message, "rename the file or folder")
            return source
    return None


def _read(path: Path) -> bytes | Source:
    source = Source(str(path), ())
    start = Place(line=1, column=1)
    try:
        if path.is_dir():
            source.error(start, "not-a-file", "this is a folder, not a workflow", "name a Markdown file in it")
            return source
        if path.exists() and not path.is_file():
            # a pipe that nobody writes to would be waited for, for ever
            source.error(
                start, "not-a-file", "this is a pipe or a device, not a workflow", "save it as a Markdown file"
            )
            return source
        with path.open("rb") as stream:
            return stream.read(MOST_WORKFLOW_BYTES)
    except FileNotFoundError:
        source.error(start, "no-such-file", "there is no such file", _near(path))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        circle = isinstance(error, OSError) and error.errno == errno.ELOOP
        hint = "its links lead in a circle: point one of them at the file" if circle else "make the file readable"
        source.error(start, "unreadable", f"can't read the workflow: {why.lower()}", hint)
    return source


def _near(path: Path) -> str:
    """Suggest a workflow of nearly that name in the same folder."""
    try:
        beside = [entry.name for entry in path.parent.glob("*.md")]
    except OSError:
        return ""
    return did_you_mean(path.name, beside) or "check the path"


def workflow_files(paths: Sequence[Path]) -> list[Path]:
    """Return the files named and the workflow files below the folders named, each once, in order."""
    found: dict[Path, None] = {}
    for path in paths:
        if seen(path.is_dir):
            found.update(dict.fromkeys(p for p in sorted(path.rglob("*.md")) if _is_workflow(p)))
        else:
            found[path] = None
    return list(found)


def _is_workflow(path: Path) -> bool:
    """Tell whether a Markdown file opens with front matter that has `steps:`; other notes are left alone."""
    try:
        # a pipe without a writer would be waited for
        text = path.read_text(encoding="utf-8-sig", errors="replace") if path.is_file() else ""
    except OSError:
        return False
    head = text.partition("\n---")[0]
    return head.startswith("---") and "\nsteps:" in head
