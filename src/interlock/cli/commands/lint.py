"""`interlock lint`: check workflow files, and folders of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import click

from interlock.cli.options import example, json_option
from interlock.cli.output import note, say, write_json_list
from interlock.cli.session import Session
from interlock.cli.text import count
from interlock.driver.compiling import workflow_files
from interlock.errors import ConfigError, Diagnostic, UsageError, WorkflowError
from interlock.plan.diagnose import render


@click.command(epilog=example("interlock lint review.md", "interlock lint workflows/ --json"))
@click.argument("texts", nargs=-1, required=True, type=click.Path(), metavar="FILE|DIR...")
@json_option("Print a JSON list of findings.")
@click.pass_obj
def command(session: Session, texts: Sequence[str], *, as_json: bool) -> int:
    """Check workflow files with the parser that `run` uses; exits 2 if there are errors (78 if only in the configuration).

    A folder stands for the workflows in it: its Markdown files with `steps:` in their front matter.
    """
    if not all(text.strip() for text in texts):
        # a variable that is not set: to check the current folder instead would find no fault
        raise UsageError("blank-path", "a path is blank", "name files or folders")
    paths = [Path(text) for text in texts]
    for path in paths:
        if path.is_dir() and not workflow_files([path]):
            note(f"note: no workflow lies in {path}")
    found = session.app.lint(paths)
    errors = sum(1 for diagnostic in found if diagnostic.severity == "error")
    code = _code(found, {str(file) for file in session.app.project.config_files})
    if as_json:
        write_json_list(_view(diagnostic) for diagnostic in found)
        return code
    for diagnostic in found:
        say(render(diagnostic) + "\n")
    notices = sum(1 for diagnostic in found if diagnostic.severity == "notice")
    warnings = len(found) - errors - notices
    faults = f"{count(errors, 'error')}, {count(warnings, 'warning')}" if errors + warnings else "no faults found"
    note(faults + (f", {count(notices, 'notice')}" if notices else ""))
    return code


def _code(found: Sequence[Diagnostic], config_files: Collection[str]) -> int:
    """That of a faulty workflow, or of a faulty configuration when that is all."""
    files = {diagnostic.file for diagnostic in found if diagnostic.severity == "error"}
    if not files:
        return 0
    return ConfigError.exit_code if files.issubset(config_files) else WorkflowError.exit_code


def _view(found: Diagnostic) -> dict[str, Any]:
    names = ("file", "line", "column", "severity", "code", "message", "hint")
    return {name: getattr(found, name) for name in names}
