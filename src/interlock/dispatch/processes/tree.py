"""An attempt's processes: its leader, the leader's group and session, their descendants, and whatever carries its mark.

Guarantees: a child that left the group is found by parentage, by its mark, or by the lookout's memory; a signal reaches
only a process that was held fast and found to be the one meant, never our own process or group; `kill` returns True
when nothing of the tree runs.
The leader must not be reaped while its tree is in use: until then nobody else can get its pid or group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterable
from typing import Final

from interlock.dispatch.processes import identity
from interlock.dispatch.processes.identity import Stat
from interlock.dispatch.processes.lookout import remembered
from interlock.dispatch.processes.reaper_main import marker_of, pids, send

_FRESH_S: Final = 0.02
_AGAIN_S: Final = 0.005
_STUCK_S: Final = 5.0


class _Census:
    """All running processes at one moment, indexed by what ties them to a tree."""

    def __init__(self, rows: list[tuple[Stat, bytes]]) -> None:
        self.stats = {stat.pid: stat for stat, _ in rows}
        self.children: dict[int, list[int]] = {}
        self.led: dict[int, list[int]] = {}
        self.marked: dict[bytes, list[int]] = {}
        for stat, mark in rows:
            self.children.setdefault(stat.ppid, []).append(stat.pid)
            for leader in {stat.pgid, stat.sid}:
                self.led.setdefault(leader, []).append(stat.pid)
            for own in mark.split(b" ") if mark else ():
                self.marked.setdefault(own, []).append(stat.pid)

    def family(self, roots: Iterable[int]) -> list[Stat]:
        """Return the roots and all that descends from them."""
        found: dict[int, Stat] = {}
        ahead = list(roots)
        while ahead:
            pid = ahead.pop()
            if pid in self.stats and pid not in found:
                found[pid] = self.stats[pid]
                ahead += self.children.get(pid, ())
        return list(found.values())


class _Registrar:
    """Takes the census however many attempts ask, and spends at most a fifth of its time on those who are in no hurry."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken_at = -1.0
        self._took_s = 0.0
        self._census = _Census([])

    def census(self, *, fresh: bool) -> _Census:
        """Return the latest census; a fresh one began after it was asked for."""
        asked_at = time.monotonic()
        with self._lock:
            age_s = 0.0 if fresh else max(_FRESH_S, 5 * self._took_s)
            if self._taken_at < asked_at - age_s:
                self._taken_at = time.monotonic()
                self._census = _Census(_read_rows() if identity.HAS_PROC else _read_rows_by_psutil())
                self._took_s = time.monotonic() - self._taken_at
            return self._census


def _read_rows() -> list[tuple[Stat, bytes]]:
    rows = []
    for pid in pids():
        stat = identity.read_stat(pid)
        if stat is not None and stat.running:
            rows.append((stat, marker_of(pid)))
    return rows


def _read_rows_by_psutil() -> list[tuple[Stat, bytes]]:
    import psutil  # noqa: PLC0415 - only where there is no /proc

    rows = []
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
                rows.append((stat, mark.encode()))
    return rows


_registrar: Final = _Registrar()


class Tree:
    """The tree below one leader. `mark` is the attempt's marker without those of outer drivers."""

    def __init__(self, leader: int, mark: bytes) -> None:
        self._leader = leader
        self._mark = mark
        self._known: dict[int, int] = {}
        """Start times of the members last seen: a member stays one when its parent dies."""

    def members(self, *, fresh: bool = False) -> list[Stat]:
        """Return the running members, as seen lately, or from now on."""
        census = _registrar.census(fresh=fresh)
        known = (
            pid for pid, ticks in self._known.items() if pid in census.stats and census.stats[pid].start_ticks == ticks
        )
        seen = (
            pid
            for pid, started in remembered(self._mark.__eq__)
            if pid in census.stats and b"%d" % census.stats[pid].start_ticks == started
        )
        roots = [self._leader, *census.led.get(self._leader, ()), *census.marked.get(self._mark, ()), *known, *seen]
        members = [stat for stat in census.family(roots) if stat.pid != os.getpid()]
        self._known = {stat.pid: stat.start_ticks for stat in members}
        return members

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
        members = self.members(fresh=True)
        self.signal_group(number)
        for stat in members:
            if stat.pgid != self._leader:
                _signal_process(stat, number)

    def gone(self) -> bool:
        """Tell whether nothing of the tree runs any more; looked at twice, since a scan can miss a child being born."""
        return not self.members() and not self.members(fresh=True)

    def kill(self) -> bool:
        """SIGKILL until nothing is left; False when something could not be killed within 5 s."""
        until = time.monotonic() + _STUCK_S
        while True:
            members = self.members(fresh=True)
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
