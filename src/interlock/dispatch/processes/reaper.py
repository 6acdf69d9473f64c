"""Starts and stops the reaper, the small program that outlives a killed driver by as long as its children need.

Guarantee: `start` costs one spawn and does not wait for the program to be up; it must come before the first child. A
driver that dies before the reaper looks is noticed all the same: its pipe is closed by then.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from interlock.dispatch.processes.markers import Marker

_PROGRAM: Final = str(Path(__file__).with_name("reaper_main.py"))


class Reaper:
    """One per driver. Safe from any thread."""

    def __init__(self, marker: Marker, env: Mapping[bytes, bytes]) -> None:
        self._marker = marker
        self._env = env
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._done = False

    def start(self) -> None:
        """Start the program unless it runs. Where it cannot be started, the next driver's search has to do."""
        if self._done:
            return
        with self._lock:
            if self._done:
                return
            self._done = True
            reading, self._pipe = os.pipe()
            try:
                self._process = self._spawn(reading)
            except OSError:
                os.close(self._pipe)
                self._pipe = -1
            finally:
                os.close(reading)

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
        """End the program; called when no child is left, so there is nothing for it to do. Idempotent."""
        with self._lock:
            self._done = True
            process, self._process = self._process, None
            if process is not None:
                process.kill()
                process.wait()
            if self._pipe >= 0:
                os.close(self._pipe)
                self._pipe = -1
