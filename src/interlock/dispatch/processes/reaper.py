"""Starts and stops the reaper, the small program that outlives a killed driver by as long as its children need.

The lookout of the driver's children begins and ends with it, and tells it what it has taken in.
Guarantees: `start` costs one spawn and does not wait for the program to be up; it must come before the first child. A
driver that dies before the reaper looks is noticed all the same: its pipe is closed by then. A reaper that was ended by
somebody else is followed by another within about a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from interlock.dispatch.processes.lookout import Lookout
from interlock.dispatch.processes.markers import Marker
from interlock.dispatch.processes.reaper_main import Known, living, sweep

_PROGRAM: Final = str(Path(__file__).with_name("reaper_main.py"))
_AT_ONCE: Final = 128
"""Lines in one write: what is within 4 KiB a pipe takes as a whole or not at all."""
_MOST_SUCCESSORS: Final = 100
"""Where none can live, there is no end of them."""


class Reaper:
    """One per driver. Safe from any thread."""

    def __init__(self, marker: Marker, env: Mapping[bytes, bytes]) -> None:
        self._marker = marker
        self._env = env
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._done = False
        self._successors = 0
        self._lookout = Lookout(marker.prefix, self._tell, self._tend)

    def start(self) -> None:
        """Start the program unless it runs. Where it cannot be started, the next driver's search has to do."""
        if self._done:
            return
        with self._lock:
            if not self._done:
                self._begin()
                self._lookout.start()
                # not before: whoever sees it starts a child
                self._done = True

    def _begin(self) -> bool:
        """Start the program in the place of the one before; False where it cannot be, and nothing has changed."""
        try:
            reading, writing = os.pipe()
        except OSError:
            return False
        try:
            self._process = self._spawn(reading)
        except OSError:
            os.close(writing)
            return False
        finally:
            os.close(reading)
        os.set_blocking(writing, False)
        if self._pipe >= 0:
            os.close(self._pipe)
        self._pipe = writing
        return True

    def _tend(self) -> bool:
        """Start another program in the place of one that has ended; tell whether there is one."""
        with self._lock:
            if self._process is None or self._process.poll() is None or self._successors >= _MOST_SUCCESSORS:
                return False
            self._successors += 1
            return self._begin()

    def _tell(self, known: Sequence[Known]) -> bool:
        """Pass on what may lose its mark; False when that has to wait."""
        with self._lock:
            try:
                for at in range(0, len(known) if self._pipe >= 0 else 0, _AT_ONCE):
                    os.write(self._pipe, b"".join(b"%d %s\n" % one for one in known[at : at + _AT_ONCE]))
            except BlockingIOError:
                return False
            except OSError:
                # the program was ended by somebody, and nobody is left to be told
                return True
            return True

    def _spawn(self, reading: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-E", _PROGRAM, self._marker.prefix, str(os.getpid())],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=self._env,
            start_new_session=True,
        )

    @property
    def pid(self) -> int | None:
        """The program's pid while it runs."""
        return self._process.pid if self._process else None

    def close(self) -> None:
        """End what the lookout remembers, and the program: nothing is left for it to do then. Idempotent."""
        left = living(self._lookout.remembered(lambda _: True))
        self._lookout.close()
        if left:
            sweep(lambda _: False, known=left, between_scans_s=0.0)
        with self._lock:
            self._done = True
            process, self._process = self._process, None
            if process is not None:
                process.kill()
                process.wait()
            if self._pipe >= 0:
                os.close(self._pipe)
                self._pipe = -1
