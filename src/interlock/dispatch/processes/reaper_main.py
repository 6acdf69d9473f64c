"""Finds processes by their marker and kills them; run as a program, it is the reaper.

The reaper is started once per driver with `python -I -S -E reaper_main.py PREFIX DRIVER_PID`, holding the read end of
a pipe from the driver as its stdin, by which it is told of processes that may have lost their mark: lines of a pid and
a start time. When the pipe closes or the driver is gone it kills those, everything marked with the driver's prefix, and
whatever descends from that, until two scans find nothing, and exits. Only the standard library is used and nothing of
interlock is imported: the file runs alone, and must be up in milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection

_NEEDLE = b"\0INTERLOCK_MARKER="
_GIVE_UP_S = 10.0
_BETWEEN_SCANS_S = 0.01
_MANY = 2_000

Known = tuple[int, bytes]
"""A process by its pid and its start time as the system writes it."""


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(fd, 131_072):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


def pids() -> list[int]:
    """Every process there is; nothing where there is no /proc."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - pathlib is not needed here
    except OSError:
        return []


def marker_of(pid: int) -> bytes:
    """Return the value of a process's marker; empty when it has none, ended, or is not ours to look at."""
    environ = b"\0" + _read(f"/proc/{pid}/environ")
    at = environ.find(_NEEDLE)
    if at < 0:
        return b""
    start = at + len(_NEEDLE)
    end = environ.find(b"\0", start)
    return environ[start:] if end < 0 else environ[start:end]


def _origin(pid: int) -> tuple[int, bytes]:
    """Return the parent and the start time of a running process; (0, b"") when it ended."""
    raw = _read(f"/proc/{pid}/stat")
    fields = raw[raw.rfind(b")") + 2 :].split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):  # noqa: PLR2004 - the start time is the 20th after the name
        return 0, b""
    return int(fields[1]), fields[19]


def with_descendants(roots: Collection[int], parents: dict[int, int]) -> set[int]:
    """Return the roots and everything that descends from them."""
    found = set(roots)
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        grown = bool(more)
        found |= more
    return found


def ancestors(pid: int) -> set[int]:
    """Return the process itself and those above it: what it must never kill."""
    line = {pid}
    while (pid := _origin(pid)[0]) > 0 and pid not in line:
        line.add(pid)
    return line


def send(pid: int, started: bytes, number: signal.Signals) -> bool:
    """Signal the process if, held fast so that its pid cannot be reused, it still has the start time that was seen.

    Where the system cannot hold a process the check comes right before the signal. An empty `started` is not checked.
    """
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except (OSError, AttributeError):
        fd = -1
    try:
        if started and _origin(pid)[1] != started:
            return False
        if fd < 0:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    finally:
        if fd >= 0:
            os.close(fd)
    return True


def living(known: Collection[Known]) -> list[Known]:
    """Return those that still run."""
    return [(pid, started) for pid, started in known if _origin(pid)[1] == started]


def sweep(
    wanted: Callable[[bytes], bool],
    give_up_s: float = _GIVE_UP_S,
    between_scans_s: float = _BETWEEN_SCANS_S,
    known: Collection[Known] = (),
) -> int:
    """Kill every process that is `known` or whose marker is wanted, with all below it; return how many were killed.

    Ends after two scans in a row without one, so that a child caught between fork and exec is not missed.
    """
    spared = ancestors(os.getpid())
    killed: set[int] = set()
    clean = 0
    until = time.monotonic() + give_up_s
    while clean < 2 and time.monotonic() < until:  # noqa: PLR2004 - two clean scans, see above
        everyone = pids()
        roots = {pid for pid in everyone if pid not in spared and (marker := marker_of(pid)) and wanted(marker)}
        roots |= {pid for pid, _ in living(known)} - spared
        clean = 0 if roots else clean + 1
        if roots:
            origins = {pid: _origin(pid) for pid in everyone}
            doomed = with_descendants(roots, {pid: parent for pid, (parent, _) in origins.items()}) - spared
            killed |= {pid for pid in doomed if origins[pid][1] and send(pid, origins[pid][1], signal.SIGKILL)}
            # what we may not end, because it has become another user's, is not waited for
            known = [(pid, started) for pid, started in known if pid in killed]
        if clean < 2:  # noqa: PLR2004 - as above
            # what was killed needs a moment to be gone
            time.sleep(_BETWEEN_SCANS_S if roots else between_scans_s)
    return len(killed)


class _Told:
    """What the driver says of its children, as far as it was read."""

    def __init__(self) -> None:
        self.known: dict[int, bytes] = {}
        self._rest = b""

    def read(self) -> bool:
        """Take in what lies in the pipe; False once there will be no more."""
        while True:
            try:
                part = os.read(0, 65_536)
            except BlockingIOError:
                return True
            if not part:
                return False
            *lines, self._rest = (self._rest + part).split(b"\n")
            for pid, _, started in (line.partition(b" ") for line in lines):
                self.known[int(pid)] = started
            if len(self.known) > _MANY:
                self.known = dict(living(self.known.items()))


def _wait_for_death(driver: int) -> Collection[Known]:
    """Return what the driver told until its death."""
    told = _Told()
    os.set_blocking(0, False)
    poller = select.poll()
    poller.register(0, select.POLLIN | select.POLLHUP)
    fd = -1
    with contextlib.suppress(OSError, AttributeError):
        fd = os.pidfd_open(driver)
        poller.register(fd, select.POLLIN)
    # asked after the pidfd is held: from here on neither an early death nor a reused pid goes unnoticed
    if os.getppid() == driver:
        while not any(found == fd for found, _ in poller.poll()) and told.read():
            pass
    # what it wrote last may still lie there
    told.read()
    return told.known.items()


def main(prefix: str, driver: int) -> None:
    """Wait for the driver's death, then sweep."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    wanted = prefix.encode()
    known = _wait_for_death(driver)
    sweep(lambda value: any(mark.startswith(wanted) for mark in value.split(b" ")), known=known)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
