"""Units per second of the executor alone: no-op Python functions through LocalExecutor, next to ProcessPoolExecutor.

`driver us` is the processor time that this process spends on one unit: what is taken from the loop's budget.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from msgspec.structs import replace

from interlock.dispatch.base import Job, Outcome, Request
from interlock.dispatch.env.redact_base import NullRedactor, ResolvedEnv
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.processes.markers import Marker
from interlock.driver.local import LocalExecutor
from interlock.model.actions import Ahead
from interlock.model.plan import PythonFunction

NO_LINE = Ahead(waiting=0, each=0)
MODULE = "def nothing(context):\n    return None\n"


def nothing(_context: dict[str, object]) -> None:
    return None


def requests(job: Job, count: int) -> list[Request]:
    return [
        Request(
            job=job,
            dispatch=f"d{number:08d}",
            unit_id=f"work:{number:016x}",
            attempt=1,
            idempotency_key=f"key-{number:08d}",
            item_json=b'"item-%d"' % number,
            index=number,
        )
        for number in range(count)
    ]


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def drive(
    executor: LocalExecutor, job: Job, count: int, in_flight: int, commit_us: int, unit_us: int
) -> tuple[float, int]:
    """Return seconds taken and how many times wait returned outcomes. The times stand for a loop's own work."""
    todo = requests(job, count)
    todo.reverse()
    started = time.perf_counter()
    running = done = rounds = 0
    while done < count:
        line = executor.ahead("run").get(0, NO_LINE)
        fresh = min(in_flight - (running - line.waiting), len(todo))
        behind = min(line.each * in_flight - line.waiting, len(todo) - fresh)
        places = executor.capacity(job, fresh, max(0, behind))
        spin((commit_us + unit_us * len(places)) / 1e6)
        executor.start([replace(todo.pop(), process=place, ahead=n >= fresh) for n, place in enumerate(places)])
        running += len(places)
        ended = sum(isinstance(report, Outcome) for report in executor.wait(None))
        rounds += ended > 0
        running -= ended
        done += ended
    return time.perf_counter() - started, rounds


def ours(count: int, in_flight: int, commit_us: int = 0, unit_us: int = 0) -> tuple[float, float, float]:
    """Units/s, driver's microseconds of processor time a unit, outcomes a wait."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bench_module.py").write_text(MODULE, encoding="utf-8")
        target = PythonFunction(module="bench_module", function="nothing", file="bench_module.py", sha256="")
        job = Job(
            key="bench",
            run_id="run",
            step_id="work",
            step=0,
            target=target,
            cwd=folder,
            timeout_ms=600_000,
            python_path=(folder,),
        )
        log = RunLog(Path(folder) / "log")
        executor = LocalExecutor(
            python=(sys.executable,),
            env_for=lambda _job: ResolvedEnv({}, NullRedactor()),
            marker=Marker("run", "holder", 1),
            log=log,
            scratch=Path(folder),
        )
        try:
            drive(executor, job, 200, in_flight, 0, 0)
            before = time.process_time()
            seconds, rounds = drive(executor, job, count, in_flight, commit_us, unit_us)
            used = time.process_time() - before
        finally:
            executor.close()
            log.close()
    return count / seconds, used / count * 1e6, count / rounds


def pool(count: int, in_flight: int) -> tuple[float, float]:
    """The same with the standard library's pool, bounded to `in_flight` at a time."""
    with ProcessPoolExecutor(in_flight) as executor:
        list(executor.map(nothing, [{}] * 200))
        before = time.process_time()
        started = time.perf_counter()
        left = count
        running: set[Future[None]] = set()
        while left or running:
            while left and len(running) < in_flight:
                running.add(executor.submit(nothing, {"item": left}))
                left -= 1
            running = wait(running, return_when=FIRST_COMPLETED).not_done
        seconds = time.perf_counter() - started
        used = time.process_time() - before
    return count / seconds, used / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print(f"{options.units} no-op Python units, {os.cpu_count()} processors, medians of {options.repeat}")
    print(f"{'':34}{'in flight':>10}{'units/s':>10}{'driver us':>11}{'a wait':>8}")
    for in_flight in (8, 16):
        mine = [ours(options.units, in_flight) for _ in range(options.repeat)]
        loop = [ours(options.units, in_flight, 150, 40) for _ in range(options.repeat)]
        theirs = [pool(options.units, in_flight) for _ in range(options.repeat)]
        for name, rows in (("LocalExecutor", mine), ("150 us a commit, 40 us a unit", loop)):
            rate, used, batch = (statistics.median(column) for column in zip(*rows, strict=True))
            print(f"{name:34}{in_flight:>10}{rate:>10.0f}{used:>11.1f}{batch:>8.1f}")
        rate, used = (statistics.median(column) for column in zip(*theirs, strict=True))
        print(f"{'ProcessPoolExecutor':34}{in_flight:>10}{rate:>10.0f}{used:>11.1f}{'':>8}")


if __name__ == "__main__":
    main()
