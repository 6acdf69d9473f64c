"""Gives what a function forks the marker of its unit, by which it is found wherever it goes.

A part of the worker (worker.py says what that means). What runs another program takes the marker along in its environment;
a child that only forks keeps showing the one that the zygote was started with, since the system shows the memory
where that lay. So the child writes its marker there: it costs nothing where nothing is forked. Guarantee: the longest marker
that fits between the bounds of the old one is written, or nothing.
"""

from __future__ import annotations

import os

_NAME = b"INTERLOCK_MARKER="
_ENV_START = 47
"""Place in /proc/PID/stat behind the process's name."""


def show_marker(marker: str) -> None:
    """Make this process show `marker` to whoever looks at its environment from outside; where that can't be it doesn't."""
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - pathlib is slow to load
            shown = b"\0" + file.read()
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - as above
            start = int(file.read().rpartition(b")")[2].split()[_ENV_START])
        at = shown.find(b"\0" + _NAME)
        begin = at + 1 + len(_NAME)
        room = shown.find(b"\0", begin) - begin
        data = os.fsencode(marker)
        if at >= 0 and start > 0 and len(data) <= room:
            # one NUL is put before all of them
            _overwrite(start + begin - 1, data.ljust(room, b"\0"))
    except Exception:  # noqa: BLE001 - in a child of the user's function, which has its own work to do
        return


def _overwrite(address: int, data: bytes) -> None:
    try:
        fd = os.open("/proc/self/mem", os.O_WRONLY)
        try:
            os.pwrite(fd, data, address)
        finally:
            os.close(fd)
    except OSError:
        # a host that doesn't let a process write its own memory through a file
        import ctypes  # noqa: PLC0415 - slow to load

        ctypes.memmove(address, data, len(data))
