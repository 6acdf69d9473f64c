"""How many prompts an engine is given at a time, by all runs and processes of the machine together.

A place is taken before a prompt is sent and given back after its end. `concurrency` bounds the places; an answer
that says "too many" or "overloaded" halves the bound, good answers raise it again, one place a round. Guarantees:
a killed holder frees its places; waiting costs no processor time to speak of, can be cancelled at once, and is
first come first served within a process and fair between processes; where the shared file cannot be had the limit
holds within this process, and `notice` says so.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from interlock.dispatch.base import EngineSettings
from interlock.dispatch.prompts.limiter_file import MAX_PLACES, Lowered, SharedFile

_LOOK_S: Final = 0.025
"""How often the first in line looks whether another process has freed a place."""
_IDLE_LOOK_S: Final = 0.25
"""The same while this process holds all places itself: it will be told."""
_RAISE_AFTER_S: Final = 1.0


def limits_folder(environ: Mapping[str, str]) -> Path:
    """Return where this user's processes share their limits."""
    state = environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path(environ.get("HOME", "/nonexistent")) / ".local" / "state"
    return base / "interlock" / "limits"


class Place:
    """The right to one prompt. Give it back once."""

    def __init__(self, number: int, taken_at: float) -> None:
        self.number = number
        self.taken_at = taken_at


class Waiting:
    """One who waits in line. `cancelled` is asked again whenever `wake` was called."""

    def __init__(self, cancelled: Callable[[], bool]) -> None:
        self.cancelled = cancelled
        self.place: Place | None = None
        """Given by whoever looked for places."""
        self._event = threading.Event()

    def wake(self) -> None:
        """Make it look again. Safe from any thread."""
        self._event.set()

    def sleep(self, seconds: float | None) -> None:
        """Wait for `wake`, at most so long."""
        self._event.wait(seconds)
        self._event.clear()


class EngineLimit:
    """The places of one engine, as this process sees them. Safe from any thread."""

    def __init__(self, path: Path, name: str, concurrency: int | None) -> None:
        self._most = min(concurrency or MAX_PLACES, MAX_PLACES)
        self._lock = threading.Lock()
        self._line: deque[Waiting] = deque()
        self._held: set[int] = set()
        self._turn_at = 0.0
        self._waits = False
        self._lowered: Lowered | None = None
        """Only where there is no shared file."""
        self.notice = ""
        self._file: SharedFile | None = None
        try:
            self._file = SharedFile(path)
        except OSError as error:
            self.notice = (
                f"the limit of engine `{name}` holds for this run alone: {path} cannot be used ({error.strerror})"
            )

    def take(self, waiting: Waiting) -> Place | None:
        """Wait in line for a place; None once it is cancelled."""
        with self._lock:
            self._line.append(waiting)
            self._serve()
        while waiting.place is None and not waiting.cancelled():
            with self._lock:
                pause = self._pause() if self._line and self._line[0] is waiting else None
            waiting.sleep(pause)
            if pause is not None:
                with self._lock:
                    self._serve()
        with self._lock:
            if waiting.place is None:
                self._line.remove(waiting)
                self._say_whether_waiting()
                if self._line:
                    self._line[0].wake()
            elif waiting.cancelled():
                self._free(waiting.place)
                waiting.place = None
        return waiting.place

    def _serve(self) -> None:
        """Give out the places that there are, in the order of the line."""
        first = self._line[0] if self._line else None
        while self._line and (place := self._try()) is not None:
            served = self._line.popleft()
            served.place = place
            served.wake()
        self._say_whether_waiting()
        if self._line and self._line[0] is not first:
            # from now on it is the one who looks from time to time
            self._line[0].wake()

    def _say_whether_waiting(self) -> None:
        waiting = bool(self._line)
        if self._file and waiting != self._waits:
            self._file.wait_openly(waiting=waiting)
            self._waits = waiting

    def _limit(self) -> int:
        lowered = self._file.lowered() if self._file else self._lowered
        return self._most if lowered is None else min(self._most, lowered.limit)

    def _try(self) -> Place | None:
        if time.monotonic() < self._turn_at:
            return None
        limit = self._limit()
        # after a cut more may be under way than the limit allows: none is begun until they have ended
        if limit == self._most or self._in_flight() < limit:
            for number in range(limit):
                if number not in self._held and (self._file is None or self._file.take(number)):
                    self._held.add(number)
                    return Place(number, time.monotonic())
        return None

    def _in_flight(self) -> int:
        return len(self._held) + (self._file.taken_by_others() if self._file else 0)

    def _pause(self) -> float:
        return _LOOK_S if len(self._held) < self._limit() else _IDLE_LOOK_S

    def give_back(self, place: Place, *, overloaded: bool = False, answered: bool = False) -> None:
        """Free the place; say whether the engine had too much to do, or answered well."""
        with self._lock:
            if overloaded:
                self._change(lambda state: self._halved(state, place))
            elif answered and self._limit() < self._most:
                self._change(self._raised)
            self._free(place)

    def _free(self, place: Place) -> None:
        self._held.discard(place.number)
        if self._file:
            self._file.give_back(place.number)
            if self._file.others_wait():
                # who has just had a place lets the others look first
                self._turn_at = time.monotonic() + 1.5 * _LOOK_S
        self._serve()

    def _change(self, change: Callable[[Lowered | None], Lowered | None]) -> None:
        if self._file is None:
            self._lowered = change(self._lowered)
            return
        try:
            with self._file.alone():
                self._file.set_lowered(change(self._file.lowered()))
        except OSError:
            # a full disk: the old figures stand
            return

    def _halved(self, state: Lowered | None, place: Place) -> Lowered | None:
        if state is not None and place.taken_at <= state.cut_at:
            # sent before the last cut: it says nothing about what the engine bears now
            return state
        now = time.monotonic()
        limit = max(1, min(self._most if state is None else state.limit, self._in_flight()) // 2)
        return Lowered(limit=limit, changed_at=now, cut_at=now)

    def _raised(self, state: Lowered | None) -> Lowered | None:
        if state is None:
            return None
        now = time.monotonic()
        answered = state.answered + 1
        if answered < state.limit or now - state.changed_at < _RAISE_AFTER_S:
            return Lowered(limit=state.limit, changed_at=state.changed_at, cut_at=state.cut_at, answered=answered)
        limit = state.limit + 1
        return None if limit >= self._most else Lowered(limit=limit, changed_at=now, cut_at=state.cut_at)

    def close(self) -> None:
        """Free everything. Idempotent."""
        with self._lock:
            if self._file:
                self._file.close()
                self._file = None


class Limiter:
    """The limits of all engines that a run uses. Safe from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._limits: dict[str, EngineLimit] = {}

    def of(self, settings: EngineSettings) -> EngineLimit:
        """Return the limit of that engine."""
        with self._lock:
            limit = self._limits.get(settings.name)
            if limit is None:
                limit = EngineLimit(self._folder / _key(settings), settings.name, settings.concurrency)
                self._limits[settings.name] = limit
            return limit

    def close(self) -> None:
        """Free everything. Idempotent."""
        with self._lock:
            for limit in self._limits.values():
                limit.close()


def _key(settings: EngineSettings) -> str:
    """Engines are one to the limit when name, address and key are."""
    parts = (settings.name, settings.base_url or "", settings.api_key or "")
    return hashlib.sha256(os.fsencode("\0".join(parts))).hexdigest()[:32]
