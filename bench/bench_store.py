"""What the journal costs: microseconds a unit (one reservation and one end) in batches of 1, 8 and 64.

Beside it, measured in the same run: raw FULL commits of SQLite with one row each, and one fsync. `cpu` is the time of
this process, the system's part of it included; `sql` is what is left with fsync switched off.

    python bench/bench_store.py [units]
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from interlock.model import events as ev
from interlock.model.run import Lease
from interlock.model.states import AttemptState, UnitState
from interlock.store.births import NewRun, NewStep
from interlock.store.sqlite import SqliteStore

UNITS = 8_000
BIG = 100_000
ROUNDS = 3
PROCESS = ev.Process(4242, 123_456, "00000000-0000-0000-0000-000000000000")
LEASE = Lease(
    run_id="bench",
    holder="0123456789abcdef",
    term=1,
    pid=1,
    start_ticks=1,
    boot_id="b",
    pid_namespace="n",
    host="h",
    since_ms=1,
    renewed_ms=1,
    expires_ms=1,
    expires_boot_ms=1,
)


def reserved(unit: int) -> ev.AttemptReserved:
    return ev.AttemptReserved(
        at=1_900_000_000_000, step=0, unit=unit, number=1, dispatch=f"{LEASE.holder}.{unit}", process=PROCESS
    )


def finished(unit: int) -> ev.AttemptFinished:
    return ev.AttemptFinished(
        at=1_900_000_000_001,
        step=0,
        unit=unit,
        number=1,
        dispatch=f"{LEASE.holder}.{unit}",
        state=AttemptState.COMPLETED,
        unit_state=UnitState.COMPLETED,
        result=b'{"ok":true}',
        exit_code=0,
        process=PROCESS,
        started_at=1_900_000_000_000,
    )


def opened(folder: Path, units: int) -> SqliteStore:
    """A run with so many pending units."""
    store = SqliteStore.open(folder / "journal.db")
    new = NewRun(
        id="bench",
        workflow="w.md",
        plan_hash="sha256:0",
        plan_json=b"{}",
        params_json=b"{}",
        created_at=1,
        steps=(NewStep(id="work"),),
    )
    store.create_run(new, LEASE)
    fresh = tuple(ev.NewUnit(i, f"work:{i:016x}", i, b"%d" % i, "sha256:" + "0" * 64) for i in range(units))
    store.commit(LEASE, [ev.StepStarted(at=1, step=0, round=1, loop=1, units=fresh)])
    return store


def turns(units: int, size: int) -> list[list[ev.Event]]:
    """As the loop does it: the ends of one batch and the reservations of the next in one commit."""
    found: list[list[ev.Event]] = []
    for start in range(0, units + size, size):
        ends = [finished(unit) for unit in range(max(0, start - size), min(start, units))]
        found.append([*ends, *(reserved(unit) for unit in range(start, min(start + size, units)))])
    return found


def a_unit(units: int, size: int, *, sync: bool) -> tuple[float, float]:
    """Wall and processor microseconds a unit."""
    with tempfile.TemporaryDirectory() as name, opened(Path(name), units) as store:
        if not sync:
            store._db.raw.execute("PRAGMA synchronous = OFF")  # noqa: SLF001 - to tell SQL from fsync
        batches = turns(units, size)
        wall, cpu = time.perf_counter(), time.process_time()
        for batch in batches:
            store.commit(LEASE, batch)
        return (time.perf_counter() - wall) / units * 1e6, (time.process_time() - cpu) / units * 1e6


def raw_commits(count: int = 1_000) -> float:
    """Microseconds of a FULL commit of one small row."""
    with tempfile.TemporaryDirectory() as name:
        raw = sqlite3.connect(Path(name) / "raw.db", isolation_level=None)
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("PRAGMA synchronous = FULL")
        raw.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
        start = time.perf_counter()
        for number in range(count):
            raw.execute("BEGIN IMMEDIATE")
            raw.execute("INSERT INTO t VALUES (?, 'x')", (number,))
            raw.execute("COMMIT")
        took = time.perf_counter() - start
        raw.close()
        return took / count * 1e6


def fsyncs(count: int = 500) -> float:
    """Microseconds of one 4 KiB append and fsync."""
    with tempfile.TemporaryFile() as file:
        start = time.perf_counter()
        for _ in range(count):
            os.write(file.fileno(), b"x" * 4_096)
            os.fsync(file.fileno())
        return (time.perf_counter() - start) / count * 1e6


def big_run() -> None:
    """What a person and a driver wait for on a run of 100,000 units."""
    with tempfile.TemporaryDirectory() as name:
        begin = time.perf_counter()
        with opened(Path(name), BIG) as store:
            print(f"{BIG:,} units inserted     {(time.perf_counter() - begin) * 1e3:8.0f} ms")
            for batch in turns(BIG, 256):
                store.commit(LEASE, batch)
            looks: dict[str, Callable[[], object]] = {
                "census": lambda: store.census("bench"),
                "spent": lambda: store.spent("bench"),
                "load": lambda: store.load("bench"),
                "units": lambda: sum(1 for _ in store.units("bench")),
            }
            for label, look in looks.items():
                begin = time.perf_counter()
                look()
                print(f"{label:8} of {BIG:,}       {(time.perf_counter() - begin) * 1e3:8.1f} ms")


def main() -> None:
    units = int(sys.argv[1]) if len(sys.argv) > 1 else UNITS
    print(f"fsync of 4 KiB             {statistics.median(fsyncs() for _ in range(ROUNDS)):8.1f} us")
    print(f"raw FULL commit, one row   {statistics.median(raw_commits() for _ in range(ROUNDS)):8.1f} us")
    for size in (1, 8, 64):
        some = units if size > 1 else units // 4
        full = [a_unit(some, size, sync=True) for _ in range(ROUNDS)]
        bare = [a_unit(some, size, sync=False) for _ in range(ROUNDS)]
        wall, cpu, sql = (
            statistics.median(values) for values in ([f[0] for f in full], [f[1] for f in full], [f[1] for f in bare])
        )
        print(f"batches of {size:2}: a unit       {wall:8.1f} us wall {cpu:8.1f} us cpu {sql:8.1f} us sql")
    big_run()


if __name__ == "__main__":
    main()
