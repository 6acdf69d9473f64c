"""Doing something in a child process of the test, which may give up what this one still needs."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_a_child(do: Callable[[], str]) -> str:
    """Return what it returns in a fork of this process, or the error that it raised there, as text."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
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
