"""Remembers what descends from a driver's children, for when it has neither mark, parent nor group left to be known by.

About once a second all processes that are new since are looked at: one is taken in when it carries a mark of the driver,
or when its parent was taken in before. Guarantees: what was taken in stays, whatever it and those above it become; it is
known by pid and start time, so that a reused pid is nobody's; a run that is over within a second costs no look.
A process that lost its mark, whose parent ended between two looks, is not seen.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from interlock.dispatch.processes import identity
from interlock.dispatch.processes.identity import Stat
from interlock.dispatch.processes.reaper_main import Known, marker_of, pids

EVERY_S: Final = 1.0


class _Kin(msgspec.Struct, frozen=True):
    """One process that was taken in, and the mark that it or the nearest one above it carried then."""

    start_ticks: int
    mark: bytes


class Lookout:
    """One per driver. `tell` is given what was newly taken in, and says whether it could be passed on.

    `tend` is called before each look, and says whether who was told is another by now, who knows nothing.
    """

    def __init__(self, prefix: str, tell: Callable[[Sequence[Known]], bool], tend: Callable[[], bool]) -> None:
        self._prefix = prefix.encode()
        self._tell = tell
        self._tend = tend
        self._lock = threading.Lock()
        self._kin: dict[int, _Kin] = {}
        """By pid; a new one takes its place at each look, so that it can be read without a lock."""
        self._untold: set[int] = set()
        self._strangers: set[int] = set()
        self._closing = threading.Event()

    def start(self) -> None:
        """Begin, where there is something to look at."""
        if identity.HAS_PROC:
            _LOOKOUTS[self._prefix] = self
            # where no thread is to be had the marks have to do
            with contextlib.suppress(RuntimeError):
                threading.Thread(target=self._watch, name="lookout", daemon=True).start()

    def close(self) -> None:
        """Look no more, and forget all. Idempotent."""
        self._closing.set()
        _LOOKOUTS.pop(self._prefix, None)

    def _watch(self) -> None:
        # who is told may be gone, and a host program may have chosen to die of that
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        while not self._closing.wait(EVERY_S):
            self.look()

    def look(self) -> None:
        """Take in what is new."""
        with self._lock:
            if self._tend():
                self._untold = set(self._kin)
            here = set(pids())
            if not here:
                # no file is left to look with; at least this process is there
                return
            kin = {pid: known for pid, known in self._kin.items() if pid in here}
            self._strangers = (self._strangers & here) | self._take_in(kin, here - kin.keys() - self._strangers)
            self._untold = (self._untold | (kin.keys() - self._kin.keys())) & here
            self._kin = kin
            if self._untold and self._tell([(pid, b"%d" % kin[pid].start_ticks) for pid in self._untold]):
                self._untold = set()

    def _take_in(self, kin: dict[int, _Kin], fresh: Iterable[int]) -> set[int]:
        """Add those of the `fresh` processes to `kin` that belong to it; return those that never will."""
        stats = {pid: stat for pid in fresh if (stat := identity.read_stat(pid)) is not None and stat.running}
        for pid, stat in stats.items():
            if mark := self._own(marker_of(pid)):
                kin[pid] = _Kin(stat.start_ticks, mark)
        # children may come before their parents
        while born := {
            pid: kin[stat.ppid].mark for pid, stat in stats.items() if pid not in kin and _is_child(stat, kin)
        }:
            kin.update({pid: _Kin(stats[pid].start_ticks, mark) for pid, mark in born.items()})
        # a child of ours carries no mark until its exec is done, which may take its time
        return {pid for pid, stat in stats.items() if pid not in kin and stat.ppid != os.getpid()}

    def _own(self, value: bytes) -> bytes:
        return next((mark for mark in value.split(b" ") if mark.startswith(self._prefix)), b"")

    def remembered(self, wanted: Callable[[bytes], bool]) -> list[Known]:
        """Return what was taken in by a mark that is wanted, by pid and start time: some of it may be gone."""
        return [(pid, b"%d" % kin.start_ticks) for pid, kin in self._kin.items() if wanted(kin.mark)]


def _is_child(stat: Stat, kin: dict[int, _Kin]) -> bool:
    """Tell whether the process had its parent among `kin`; looked at after the child, the parent was the same then."""
    known = kin.get(stat.ppid)
    if known is None:
        return False
    parent = identity.read_stat(stat.ppid)
    return parent is not None and parent.start_ticks == known.start_ticks


_LOOKOUTS: Final[dict[bytes, Lookout]] = {}
"""By what the marks start with, of all drivers of this process: who ends processes knows no more of them."""


def remembered(wanted: Callable[[bytes], bool]) -> list[Known]:
    """Return what any driver of this process has taken in by a mark that is wanted."""
    return [known for lookout in [*_LOOKOUTS.values()] for known in lookout.remembered(wanted)]
