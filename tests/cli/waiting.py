"""Waiting for what a program of its own brings about, with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Tell whether the process has ended; a zombie that nobody reaps has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
