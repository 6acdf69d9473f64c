"""Failures made readable: what is wrong, where, and what to do; never a traceback.

An error that nobody foresaw is one line too: its traceback goes to a file that the line names.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from pathlib import Path
from typing import Final

import click

from interlock.cli.called import spelled
from interlock.cli.output import style
from interlock.cli.text import safe, safe_lines
from interlock.errors import InterlockError, WorkflowError

INTERRUPTED: Final = 130
USAGE: Final = 2
FAILED: Final = 1


def complain(message: str, hint: str = "") -> None:
    """Write an error, and its hint, to standard error; a closed one is nothing to fail about."""
    lines = f"{style('error:', fg='red', bold=True)} {message}\n"
    if hint:
        lines += f"{style('hint:', fg='cyan')} {spelled(hint)}\n"
    with contextlib.suppress(OSError, ValueError):
        click.echo(lines, err=True, nl=False)


def explain(error: InterlockError) -> int:
    """Write an error of the tree and return its exit code."""
    if isinstance(error, WorkflowError):
        from interlock.plan.diagnose import render  # noqa: PLC0415 - only a faulty file needs it

        with contextlib.suppress(OSError, ValueError):
            click.echo("\n\n".join(render(found) for found in error.diagnostics), err=True)
            click.echo(err=True)
    complain(safe_lines(error.message), safe_lines(error.hint))
    return error.exit_code


def explain_usage(error: click.ClickException) -> int:
    """Write what click refused."""
    hint = ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"see `{error.ctx.command_path} --help`"
    # click lists choices on lines of their own
    complain(safe(" ".join(error.format_message().split())), hint)
    return USAGE if isinstance(error, click.UsageError) else FAILED


def explain_os(error: OSError) -> int:
    """Write what the system refused."""
    if error.filename is None and error.errno == errno.ENOENT and not _stands_somewhere():
        complain("the current folder does not exist any more", "change into one that does: cd DIR")
        return USAGE
    what = f"{error.filename}: " if error.filename else ""
    complain(safe(f"{what}{error.strerror or error}"))
    return FAILED


def _stands_somewhere() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def explain_output(error: OSError) -> int:
    """Write that what was asked for could not be shown."""
    complain(safe(f"standard output: {error.strerror or error}"), "what was to be shown is not all there; ask again")
    return FAILED


def explain_bug(error: BaseException, project: Path | None, *, looking: bool = False) -> int:
    """Write one line about an error nobody foresaw, and where its traceback is.

    `looking`: the command only looks, and so leaves nothing in the project.
    """
    import traceback  # noqa: PLC0415 - for bugs only

    text = "".join(traceback.format_exception(error))
    summary = safe(traceback.format_exception_only(error)[-1].strip())
    if os.environ.get("INTERLOCK_TRACEBACK") == "1":
        sys.stderr.write(text)
        complain(f"internal error: {summary}")
        return FAILED
    project = project or (Path.cwd() if _stands_somewhere() else Path("/"))
    where = _keep(text, None if looking else project / ".interlock")
    hint = "set INTERLOCK_TRACEBACK=1 to see the traceback here"
    complain(f"internal error: {summary}" + (f" (traceback: {where})" if where else ""), hint)
    return FAILED


def _keep(text: str, state: Path | None) -> Path | None:
    """Write the traceback into the project's state folder, else the folder for temporary files."""
    import tempfile  # noqa: PLC0415 - for bugs only

    name = f"traceback-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
    for folder in ([state] if state is not None and state.is_dir() else []) + [Path(tempfile.gettempdir())]:
        with contextlib.suppress(OSError):
            path = folder / name
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
            return path
    return None
