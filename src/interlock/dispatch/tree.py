"""An attempt's processes: its leader, the leader's group and session, their descendants, and whatever carries its mark.

Guarantees: a child that left the group is found by parentage or by its mark; a signal reaches only a process that was
held fast and found to be the one meant, never our own process or group; `end` returns when nothing of the tree runs.
The leader must not be reaped while its tree is in use: until then nobody else can get its pid or group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Final

from interlock.dispatch import identity
from interlock.dispatch.identity import Stat
from interlock.dispatch.reaper_main import marker_of, pids, send, with_descendants

_FRESH_S: Final = 0.02
_AGAIN_S: Final = 0.005
_STUCK_S: Final = 5.0


class _Table:
    """All processes with their marks, read at most every 20 ms however many attempts ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_at = -1.0
        self._rows: dict[int, tuple[Stat, bytes]] = {}

    def rows(self, asked_at: float) -> dict[int, tuple[Stat, bytes]]:
        """Return what was read at or after `asked_at` (monotonic)."""
        with self._lock:
            if self._read_at < asked_at:
                self._read_at = time.monotonic()
                self._rows = _read_rows() if identity.HAS_PROC else _read_rows_by_psutil()
            return self._rows


def _read_rows() -> dict[int, tuple[Stat, bytes]]:
    rows = {}
    for pid in pids():
        stat = identity.read_stat(pid)
        if stat is not None and stat.running:
            rows[pid] = (stat, marker_of(pid))
    return rows


def _read_rows_by_psutil() -> dict[int, tuple[Stat, bytes]]:
    import psutil  # noqa: PLC0415 - only where there is no /proc

    rows = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            pid, cpu = process.pid, process.cpu_times()
            stat = Stat(
                pid,
                process.ppid(),
                os.getpgid(pid),
                os.getsid(pid),
                int(process.create_time() * 100),
                int((cpu.user + cpu.system) * 100),
                process.status() != psutil.STATUS_ZOMBIE,
            )
            mark = ""
            with contextlib.suppress(psutil.Error):
                mark = process.environ().get("INTERLOCK_MARKER", "")
            if stat.running:
                rows[pid] = (stat, mark.encode())
    return rows


_table: Final = _Table()


class Tree:
    """The tree below one leader. `mark` is the attempt's marker without those of outer drivers."""

    def __init__(self, leader: int, mark: bytes) -> None:
        self._leader = leader
        self._mark = mark
        self._known: dict[int, int] = {}
        """Start times of the members last seen: a member stays one when its parent dies."""

    def members(self, max_age_s: float = _FRESH_S) -> list[Stat]:
        """Return the running members, as seen at most `max_age_s` ago."""
        rows = _table.rows(time.monotonic() - max_age_s)
        roots = {pid for pid, (stat, mark) in rows.items() if self._is_root(stat, mark)}
        family = with_descendants(roots, {pid: stat.ppid for pid, (stat, _) in rows.items()})
        members = [rows[pid][0] for pid in family if pid in rows and pid != os.getpid()]
        self._known = {stat.pid: stat.start_ticks for stat in members}
        return members

    def _is_root(self, stat: Stat, mark: bytes) -> bool:
        if self._leader in (stat.pid, stat.pgid, stat.sid) or self._known.get(stat.pid) == stat.start_ticks:
            return True
        return bool(mark) and self._mark in mark.split(b" ")

    def cpu_ticks(self) -> int:
        """Return the processor time that the tree has used so far."""
        return sum(stat.cpu_ticks for stat in self.members())

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the leader's group; one that is gone, or all zombies, is fine."""
        if self._leader <= 1 or self._leader == os.getpgrp():
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader, number)

    def signal(self, number: signal.Signals) -> None:
        """Signal the group, and each member that left it."""
        # looked up first, and afresh: a parent that dies of the signal leaves no trace of its children
        members = self.members(0.0)
        self.signal_group(number)
        for stat in members:
            if stat.pgid != self._leader:
                _signal_process(stat, number)

    def gone(self) -> bool:
        """Tell whether nothing of the tree runs any more; looked at twice, since a scan can miss a child being born."""
        return not self.members() and not self.members(0.0)

    def kill(self) -> bool:
        """SIGKILL until nothing is left; False when something could not be killed within 5 s."""
        until = time.monotonic() + _STUCK_S
        while True:
            members = self.members(0.0)
            self.signal_group(signal.SIGKILL)
            if not members and self.gone():
                return True
            for stat in members:
                _signal_process(stat, signal.SIGKILL)
            if time.monotonic() > until:
                return False
            time.sleep(_AGAIN_S)


def _signal_process(stat: Stat, number: signal.Signals) -> None:
    send(stat.pid, b"%d" % stat.start_ticks if identity.HAS_PROC else b"", number)
