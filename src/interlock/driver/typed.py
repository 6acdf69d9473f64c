"""Paths in commands that a person is told to type: they can be pasted whatever they are made of."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path


def typed(path: Path) -> str:
    """Return the path quoted for a shell, and so that no command takes it for an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def typed_from_here(path: Path) -> str:
    """Return an absolute path as one types it in the current folder, where that is shorter."""
    here = str(path)
    with suppress(OSError):
        here = os.path.relpath(path)
    return typed(min(Path(here), path, key=lambda one: len(str(one))))
