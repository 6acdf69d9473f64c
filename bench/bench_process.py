"""Commands through CommandRunner against a bare loop of `subprocess.run` in threads, in the same run."""

from __future__ import annotations

import queue
import select
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from interlock.dispatch.base import Job, Outcome, Report, Request
from interlock.dispatch.commands.nursery import Pump
from interlock.dispatch.commands.runner import CommandRunner
from interlock.dispatch.env.redact_base import NullRedactor, ResolvedEnv
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.processes.markers import Marker
from interlock.model.plan import Command

UNITS = 500
CONCURRENCY = 8
ROUNDS = 7


def bare(argv: tuple[str, ...]) -> float:
    def one(_: int) -> None:
        assert subprocess.run(argv, capture_output=True, check=False).returncode == 0

    with ThreadPoolExecutor(CONCURRENCY) as pool:
        began = time.perf_counter()
        list(pool.map(one, range(UNITS)))
        return UNITS / (time.perf_counter() - began)


def engine(argv: tuple[str, ...], folder: Path, term: int) -> float:
    reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
    log = RunLog(folder / f"run-{term}.log")
    marker = Marker("bench", "holder", term)
    poller = select.epoll()
    runner = CommandRunner(
        reports.put,
        lambda _: ResolvedEnv({}, NullRedactor()),
        log,
        folder / "scratch",
        marker,
        pump=Pump(poller, reports.put, lambda: None),
    )
    job = Job(key="1", run_id="bench", step_id="step", step=0, target=Command(argv=argv), cwd=str(folder))

    def start(number: int) -> None:
        item = b'"item %d"' % number
        runner.start(
            Request(
                job=job,
                dispatch=f"d{term}-{number}",
                unit_id=f"step:{number:016x}",
                attempt=1,
                idempotency_key=f"key-{number}",
                item_json=item,
                index=number,
            )
        )

    began = time.perf_counter()
    for number in range(CONCURRENCY):
        start(number)
    started, ended = CONCURRENCY, 0
    while ended < UNITS:
        for fd, _ in poller.poll(0.01):
            runner.on_event(fd)
        runner.tick(time.monotonic())
        while not reports.empty():
            report = reports.get()
            if isinstance(report, Outcome):
                assert report.status == "ok", report
                ended += 1
                if started < UNITS:
                    start(started)
                    started += 1
    took = time.perf_counter() - began
    runner.close()
    log.close()
    poller.close()
    return UNITS / took


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{UNITS} units, {CONCURRENCY} at a time, median of {ROUNDS}; units per second")
        for argv in (("/bin/true",), ("/bin/echo", "hello")):
            pairs = [(bare(argv), engine(argv, folder, term)) for term in range(ROUNDS)]
            raw, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratio = statistics.median(ours / raw for raw, ours in pairs)
            print(f"{argv[0]:10}  subprocess.run {raw:6.0f}   CommandRunner {ours:6.0f}   ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
