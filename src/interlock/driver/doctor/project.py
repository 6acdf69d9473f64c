"""What the project itself must have: the interpreter of its functions, and room for what interlock keeps beside it."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from interlock.driver.doctor.checks import Check
from interlock.driver.project import ProjectPaths
from interlock.driver.sources import FileSources
from interlock.plan.sources import Missing

_STARTS_S: Final = 20.0
_VERSION: Final = "import sys; sys.stdout.write('%d.%d.%d' % sys.version_info[:3]); sys.exit(sys.version_info < (3, 8))"


def check_interpreter(paths: ProjectPaths, configured: tuple[str, ...]) -> Check:
    """Whether the interpreter of Python functions is there and starts; `configured` is the setting, or empty."""
    name = "functions"
    argv = FileSources(paths.root / "workflow.md", paths).python(configured)
    if isinstance(argv, Missing):
        return Check(name=name, ok=False, detail=f"the interpreter of Python functions {argv.reason}", hint=argv.hint)
    hint = "mend 'python' below [run]" if configured else "make the environment anew, or set 'python' below [run]"
    try:
        said = subprocess.run(
            [*argv, "-c", _VERSION],
            cwd=paths.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_STARTS_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = error.strerror if isinstance(error, OSError) else f"says nothing within {_STARTS_S:.0f} s"
        return Check(name=name, ok=False, detail=f"{argv[0]} can't be started: {why}", hint=hint)
    version = said.stdout.decode("utf-8", "replace")
    if said.returncode:
        wrong = f"is Python {version}; 3.8 or newer is needed" if version else "is no Python"
        return Check(name=name, ok=False, detail=f"{' '.join(argv)} {wrong}", hint=hint)
    return Check(name=name, ok=True, detail=f"Python {version} at {' '.join(argv)}")


def check_state(paths: ProjectPaths) -> Check | None:
    """What is wrong with the state directory, beyond that it can't be written; None when nothing is."""
    for folder in (
        paths.state_dir,
        *(paths.state_dir / name for name in ("logs", "artifacts", "spool", "tmp", "worktrees")),
    ):
        if os.path.lexists(folder) and not folder.is_dir():
            detail = f"{folder} is in the way: it is not a folder"
            return Check(name="journal place", ok=False, detail=detail, hint="move it away")
        if folder.is_dir() and (why := _unwritable(folder)):
            hint = "make the folder writable, or work in another with --project"
            return Check(name="journal place", ok=False, detail=f"{folder}: {why}", hint=hint)
    mark = paths.state_dir / "id"
    if os.path.lexists(mark) and not _is_id(mark):
        hint = "remove it; a new id is made then"
        return Check(name="journal place", ok=False, detail=f"{mark} can't be read or is empty", hint=hint)
    return None


def _unwritable(folder: Path) -> str:
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-"):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _is_id(mark: Path) -> bool:
    try:
        return stat.S_ISREG(mark.stat().st_mode) and bool(mark.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return False
