"""How commands are spelled that a person is told to type: so that they work where he stands.

Who named a project that is not the one around the current folder has to name it again, and who came through another
program than `interlock` may have no `interlock` on PATH: that program says in INTERLOCK_CALLED_AS how it is called.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Final

_PROGRAM: Final = "interlock"
_VARIABLE: Final = "INTERLOCK_CALLED_AS"
_called: dict[str, str] = {}


def remember_call(project: Path | None, commands: Collection[str]) -> None:
    """Keep how this call began: the project it named, and which commands there are."""
    _called.clear()
    program = os.environ.get(_VARIABLE) or _PROGRAM
    if project is not None and not _is_around(project):
        program = f"{program} --project {shlex.quote(str(project))}"
    if program != _PROGRAM:
        _called.update(dict.fromkeys(commands, program))


def spelled(text: str) -> str:
    """Return `text` with the commands in it as they have to be typed here."""
    if not _called:
        return text
    names = "|".join(_called)
    return re.sub(rf"(?<![\w./-]){_PROGRAM} ({names})\b", lambda found: f"{_called[found[1]]} {found[1]}", text)


def _is_around(project: Path) -> bool:
    """Tell whether the project is found without being named."""
    from interlock.driver.project import find_project  # noqa: PLC0415 - only who names a project asks
    from interlock.errors import InterlockError  # noqa: PLC0415 - as above

    try:
        return find_project(Path.cwd()).root == project.resolve()
    except (InterlockError, OSError):
        return False
