"""Runs a program as a user would and measures it: wall time, processor time, peak memory, as medians.

Peak memory is the largest process of the tree that was waited for, as the kernel counted it. The parent stays
small on purpose: a child's count begins with its parent's size.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a program. `peak_mib` is of its largest process."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    exit_code: int
    output: bytes = b""


def environment() -> dict[str, str]:
    """Return our environment without what changes how Python starts, such as to keep no bytecode."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


class FailedError(RuntimeError):
    """A measured program did not do its work; a figure of it would mean nothing."""


def run(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], keep: bool = False) -> Measured:
    """Run to the end. Output goes to a file, so that nobody waits for a reader."""
    said = cwd / "output.txt"
    with said.open("wb") as out:
        began = time.perf_counter()
        process = subprocess.Popen(argv, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    output = said.read_bytes()
    if process.returncode != 0:
        tail = output[-2000:].decode("utf-8", "replace")
        raise FailedError(f"{' '.join(argv)} ended with {process.returncode}:\n{tail}")
    return Measured(
        wall_s=wall,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_mib=usage.ru_maxrss / 1024,
        exit_code=process.returncode,
        output=output if keep else b"",
    )


def tree_mib(pid: int) -> float:
    """Return the memory of a process and all below it, what they share counted once. Processes that end meanwhile are left out."""
    total = 0
    waiting = [pid]
    while waiting:
        here = Path("/proc") / str(waiting.pop())
        try:
            rollup = (here / "smaps_rollup").read_text(encoding="ascii")
            for task in (here / "task").iterdir():
                waiting += map(int, (task / "children").read_text(encoding="ascii").split())
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)
    return total / 1024


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def repeat(times: int, once: Callable[[], float]) -> float:
    """Return the median of several calls."""
    return median([once() for _ in range(times)])
