"""What this machine can do at best: commits, fsyncs, bare process loops, a bare interpreter.

Every figure of the engine is printed next to these, measured in the same run, so that a slow or busy machine
shows as one.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from bench import measure


def fsync_us(folder: Path, times: int = 200) -> float:
    """Return the median time to make one appended 4 KiB block durable."""
    taken = []
    with (folder / "fsync.bin").open("ab", buffering=0) as file:
        for _ in range(times):
            file.write(b"x" * 4096)
            began = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return measure.median(taken) * 1e6


def commits_per_s(folder: Path, rows_per_commit: int, rows: int) -> float:
    """Return rows per second of bare SQLite, WAL and synchronous=FULL, that many rows in a transaction."""
    path = folder / f"commits-{rows_per_commit}.db"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as journal:
        journal.execute("PRAGMA journal_mode=WAL")
        journal.execute("PRAGMA synchronous=FULL")
        journal.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT")
        began = time.perf_counter()
        for first in range(0, rows, rows_per_commit):
            journal.execute("BEGIN IMMEDIATE")
            batch = [(i, "completed") for i in range(first, min(rows, first + rows_per_commit))]
            journal.executemany("INSERT INTO row VALUES (?, ?)", batch)
            journal.execute("COMMIT")
        return rows / (time.perf_counter() - began)


def thread_loop_per_s(argv: list[str], times: int, threads: int) -> float:
    """Return runs per second of `subprocess.run` with captured output in a thread pool."""

    def once(_: int) -> None:
        subprocess.run(argv, capture_output=True, check=True)

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(once, range(times)))
    return times / (time.perf_counter() - began)


def bare_python_ms(folder: Path, env: Mapping[str, str], times: int) -> float:
    """Return the median wall time of `python -c pass`."""
    argv = [sys.executable, "-c", "pass"]
    return measure.repeat(times, lambda: measure.run(argv, cwd=folder, env=env).wall_s * 1e3)
