"""Which process is it: pid, start time and boot, so that a reused pid is never taken for the old process.

Linux reads `/proc`; elsewhere psutil answers. Guarantee: `alive` is True only for that very process, running;
a zombie, another start time or another boot is dead.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Final

import msgspec

from interlock.model.events import Process

HAS_PROC: Final = os.path.exists("/proc/self/stat")  # noqa: PTH110 - pathlib costs more than the answer
_DEAD: Final = frozenset({b"Z", b"X", b"x"})


class Stat(msgspec.Struct, frozen=True):
    """The part of `/proc/PID/stat` that tells processes and their families apart."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    start_ticks: int
    cpu_ticks: int
    """Own and awaited children's, user and system."""
    running: bool
    """False for a zombie."""


def read_stat(pid: int) -> Stat | None:
    """Return the process's entry; None when there is no such process."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        raw = os.read(fd, 2048)
    except OSError:
        return None
    finally:
        os.close(fd)
    return parse_stat(pid, raw)


def parse_stat(pid: int, raw: bytes) -> Stat | None:
    """Read one line of `/proc/PID/stat`; the command's name may hold blanks and brackets."""
    fields = raw[raw.rfind(b")") + 2 :].split()
    if len(fields) < 20:  # noqa: PLR2004 - starttime, the last field we need, is the 20th after the name
        return None
    return Stat(
        pid,
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        int(fields[19]),
        int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14]),
        fields[0] not in _DEAD,
    )


@functools.cache
def boot_id() -> str:
    """Return what names this boot of this machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        import psutil  # noqa: PLC0415 - costs start-up where /proc already answered

        return f"boot-{int(psutil.boot_time())}"


@functools.cache
def pid_namespace() -> str:
    """Return what names the space in which our pids mean something."""
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - the link's text is the answer, not a path
    except OSError:
        return "host"


def identify(pid: int) -> Process | None:
    """Return the identity of a process that exists, zombies included; None when it does not."""
    if HAS_PROC:
        stat = read_stat(pid)
        return None if stat is None else Process(pid, stat.start_ticks, boot_id())
    return _identify_by_psutil(pid)


def alive(process: Process) -> bool:
    """Tell whether that very process still runs."""
    if process.boot_id != boot_id():
        return False
    if HAS_PROC:
        stat = read_stat(process.pid)
        return stat is not None and stat.running and stat.start_ticks == process.start_ticks
    return _identify_by_psutil(process.pid) == process and not _is_zombie(process.pid)


def _identify_by_psutil(pid: int) -> Process | None:
    import psutil  # noqa: PLC0415 - costs start-up where /proc already answered

    try:
        return Process(pid, int(psutil.Process(pid).create_time() * 100), boot_id())
    except psutil.Error:
        return None


def _is_zombie(pid: int) -> bool:
    import psutil  # noqa: PLC0415 - costs start-up where /proc already answered

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True
