"""Doing something as somebody whom file modes bind: they don't bind root, as whom tests run in a container."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

NOBODY = 65_534


def as_stranger(do: Callable[[], str]) -> str:
    """Return what it returns in a child process, which is `nobody`'s where this one is root's."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setuid(NOBODY)
            text = do()
        except BaseException as error:  # noqa: BLE001 - the child has nobody else to tell
            text = repr(error)
        os.write(tell, text.encode())
        os._exit(0)
    os.close(tell)
    with os.fdopen(told, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(pid, 0)
    return text


def give_to_stranger(folder: Path) -> None:
    """Let all below the folder be the stranger's own."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.lchown(path, NOBODY, NOBODY)
