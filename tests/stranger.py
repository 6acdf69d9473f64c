"""Doing something as somebody whom file modes bind: they don't bind root, as whom tests run in a container."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.child import in_a_child

NOBODY = 65_534


def as_stranger(do: Callable[[], str]) -> str:
    """Return what it returns in a child process, which is `nobody`'s where this one is root's."""

    def as_nobody() -> str:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setuid(NOBODY)
        return do()

    return in_a_child(as_nobody)


def give_to_stranger(folder: Path) -> None:
    """Let all below the folder be the stranger's own."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.lchown(path, NOBODY, NOBODY)
