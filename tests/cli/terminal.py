"""The program on a terminal of its own, and what of its writing would stand on the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

PATIENCE_S = 30
SEQUENCE = re.compile(rb"\x1b\[[?0-9;]*[A-Za-z]")
HIDDEN, SHOWN = b"\x1b[?25l", b"\x1b[?25h"


class Terminal:
    """One process whose input, output and errors are a terminal; `said` is all that it wrote so far."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, *, columns: int = 100, term: str = "xterm-256color"
    ) -> None:
        self.said = b""
        self._ours, theirs = pty.openpty()
        self._theirs = theirs
        self.resize(columns, tell=False)
        # what a CI sets for colours and width would decide what is shown
        env = {name: text for name, text in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from interlock.cli.entry import main; main()", *arguments],
            cwd=folder,
            env={**env, "TERM": term, "PYTHONIOENCODING": "utf-8"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )

    def resize(self, columns: int, *, tell: bool = True) -> None:
        """Give the window another width, and tell the program as a terminal does."""
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def wait_for(self, text: str) -> None:
        """Read until that was written, since the call before."""
        seen = len(self.said)
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in SEQUENCE.sub(b"", self.said[seen:]):
            assert self._read(deadline), f"{text!r} was not written: {self.said[seen:]!r}"

    def take(self, seconds: float) -> None:
        """Read what comes within that time, at most once."""
        self._read(time.monotonic() + seconds)

    def end(self) -> int:
        """Read the rest and return the exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            self._read(min(deadline, time.monotonic() + 0.05))
            assert time.monotonic() < deadline, self.said
        while self._read(time.monotonic()):
            pass
        return self.process.returncode

    def close(self) -> None:
        """End what runs and give the terminal back."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    @property
    def text(self) -> str:
        """All that was written, without what moves the cursor or colours."""
        return SEQUENCE.sub(b"", self.said).decode().replace("\r", "")

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
        if ready:
            self.said += os.read(self._ours, 65_536)
        return bool(ready)


def screen(said: bytes, columns: int) -> list[str]:
    """Return the lines that stand on a screen of that width when all was written: moves, erasures and wraps kept.

    Only what the program writes is known; another sequence is an error.
    """
    lines, row, column = [""], 0, 0
    for match in re.finditer(rb"\x1b\[[?0-9;]*[A-Za-z]|\r|\n|(?:(?!\x1b)[^\r\n])+", said):
        part = match[0]
        if part == b"\r":
            column = 0
        elif part == b"\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif not part.startswith(b"\x1b"):
            for character in part.decode():
                if column == columns:
                    row, column = row + 1, 0
                    lines += [""] * (row + 1 - len(lines))
                lines[row] = lines[row][:column].ljust(column) + character + lines[row][column + 1 :]
                column += 1
        elif part.endswith(b"A"):
            row = max(0, row - int(part[2:-1] or b"1"))
        elif part == b"\x1b[2K":
            lines[row] = ""
        else:
            assert part.endswith(b"m") or part in {HIDDEN, SHOWN}, part
    return [line.rstrip() for line in lines]
