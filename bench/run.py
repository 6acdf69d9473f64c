"""The benchmark table: `./dev bench [--times N] [--only WORD] [--quick]`.

Each figure of the engine stands next to a raw limit measured in the same run and next to what it must reach.
Medians of N runs. Nothing here is a test: a busy machine must not turn a build red.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from bench import engine, limits, measure, others

ROOT = Path(__file__).resolve().parent.parent
NOOP = "uses: python:work:noop"
TRUE, ECHO = ["/bin/true"], ["/bin/echo", "hello"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. `met` is None where nothing has to be reached."""

    name: str
    figure: str
    beside: str = ""
    reach: str = ""
    met: bool | None = None


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """How much to measure, and where."""

    base: Path
    times: int
    quick: bool


def raw_limits(setting: Setting) -> Iterator[Row]:
    """Measure the machine."""
    fsync = limits.fsync_us(setting.base)
    ceiling = engine.CONCURRENCY / (fsync / 1e6 + 0.0005)
    single = limits.commits_per_s(setting.base, 1, 2_000)
    batches = limits.commits_per_s(setting.base, 50, 50_000)
    bare = limits.bare_python_ms(setting.base, measure.environment(), setting.times * 4)
    yield Row(name="limit: fsync of 4 KiB", figure=f"{fsync:,.0f} us", beside=f"8 in flight: at most {ceiling:,.0f}/s")
    yield Row(name="limit: SQLite FULL, 1 row a commit", figure=f"{single:,.0f} rows/s")
    yield Row(name="limit: SQLite FULL, 50 rows a commit", figure=f"{batches:,.0f} rows/s")
    yield Row(name="limit: python -c pass", figure=f"{bare:.0f} ms")
    loop = bare_loop(setting, TRUE, 500)
    beside = f"{loop / others.TABLE_LOOP_PER_S:.2f} x the machine for which the bars below were set"
    yield Row(name="limit: /bin/true in 8 threads", figure=f"{loop:,.0f}/s", beside=beside)


def noop_units(setting: Setting) -> Iterator[Row]:
    """Measure the loop alone: no-op Python units in one map."""
    small = 1_000 if setting.quick else 10_000
    large = small * 10
    ten = engine.median_run(setting.base, NOOP, small, setting.times)
    rate = small / ten.wall_s
    yield Row(
        name=f"{small:,} no-op python units",
        figure=f"{rate:,.0f} units/s",
        beside=f"{ten.wall_s:.2f} s wall, {ten.cpu_s:.2f} s cpu, {ten.peak_mib:.0f} MiB",
        reach="8,000 units/s",
        met=rate >= 8_000,
    )
    hundred = engine.median_run(setting.base, NOOP, large, 1 if setting.quick else min(3, setting.times))
    large_rate = large / hundred.wall_s
    yield Row(
        name=f"{large:,} no-op python units",
        figure=f"{large_rate:,.0f} units/s",
        beside=f"{large_rate / rate:.2f} x the smaller run, {hundred.peak_mib:.0f} MiB",
        reach=">= 0.85 x, < 160 MiB",
        met=large_rate >= 0.85 * rate and hundred.peak_mib < 160,
    )
    tree = engine.tree_mib(setting.base, NOOP, large)
    yield Row(name="  driver and eight workers together", figure=f"{tree:.0f} MiB")
    yield Row(
        name=f"  status of {small:,} units",
        figure=f"{engine.reading_ms(setting.base, NOOP, small, setting.times):.0f} ms",
    )


def bare_loop(setting: Setting, argv: list[str], units: int) -> float:
    """Return the median rate of the plain thread loop."""
    return measure.repeat(setting.times, lambda: limits.thread_loop_per_s(argv, units, engine.CONCURRENCY))


def commands(setting: Setting) -> Iterator[Row]:
    """Measure commands against the same commands in a bare thread loop.

    The loop is timed in an interpreter that runs already, so what counts against it is our rate from the first unit on;
    the rate of the whole process stands beside it.
    """
    start = engine.median_run(setting.base, "run: [/bin/true]", 0, setting.times).wall_s
    for argv, units in ((TRUE, 500), (ECHO, 500)):
        bare = bare_loop(setting, argv, units)
        target = "run: [" + ", ".join(argv) + "]"
        wall = engine.median_run(setting.base, target, units, setting.times).wall_s
        rate, whole = units / max(1e-6, wall - start), units / wall
        yield Row(
            name=f"{units} x {argv[0]} at {engine.CONCURRENCY}",
            figure=f"{rate:,.0f} units/s",
            beside=f"{rate / bare:.2f} x bare {bare:,.0f}/s; {whole:,.0f}/s, {whole / bare:.2f} x with start-up",
            reach="0.6 x bare",
            met=rate >= 0.6 * bare,
        )


def crash(setting: Setting) -> Iterator[Row]:
    """Measure what a SIGKILL at half costs."""
    runs = sorted((engine.crash(setting.base) for _ in range(setting.times)), key=lambda c: c.over_ideal_s)
    middle = runs[len(runs) // 2]
    twice = max(run.completed_twice for run in runs)
    yield Row(
        name="1,000 x 5 ms, SIGKILL at half, resume",
        figure=f"{middle.over_ideal_s:.2f} s over the ideal",
        beside=f"ideal {middle.ideal_s:.2f} s, {middle.executed} executed, {twice} completed twice",
        reach="0.4 s, none twice",
        met=middle.over_ideal_s <= 0.4 and twice == 0,
    )
    took = measure.repeat(setting.times, lambda: engine.takeover_ms(setting.base))
    yield Row(
        name="SIGKILL, `run RUN-ID` until the end",
        figure=f"{took:.0f} ms",
        beside="the dead driver's child ended, its unit done again",
        reach="1,000 ms",
        met=took <= 1_000,
    )


def cold(setting: Setting) -> Iterator[Row]:
    """Measure start-up."""
    version = engine.version_ms(setting.base, setting.times * 4)
    one = engine.median_run(setting.base, "run: [/bin/true]", 0, setting.times * 2)
    yield Row(name="interlock --version", figure=f"{version:.0f} ms", reach="50 ms", met=version <= 50)
    wall = one.wall_s * 1e3
    yield Row(name="a one-step workflow", figure=f"{wall:.0f} ms", reach="150 ms", met=wall <= 150)


def peers(setting: Setting) -> Iterator[Row]:
    """Measure other engines where they are installed, and ours on the same work in between."""
    for peer in others.PEERS:
        units = min(peer.units, 1_000) if setting.quick else peer.units
        yield _beside(setting, peer, ("noop", NOOP, units, 1 if units > 1_000 else setting.times), peer.reach)
    for peer in (others.DBOS, others.LANGGRAPH):
        yield _beside(setting, peer, ("true", "run: [/bin/true]", 500, setting.times), None)
    for peer in (others.DBOS, others.LANGGRAPH):
        yield _killed_beside(setting, peer)
    yield _cold_beside(setting)


def _beside(setting: Setting, peer: others.Peer, work: tuple[str, str, int, int], reach: float | None) -> Row:
    kind, target, units, times = work
    name = f"peer: {peer.name}, {units:,} x {kind}"
    taken = others.measure_peer(peer, kind, setting.base, units, times)
    if taken.skipped:
        return Row(name=name, figure=taken.skipped)
    ours = units / engine.median_run(setting.base, target, units, setting.times).wall_s
    return Row(
        name=name,
        figure=f"{taken.units_per_s:,.0f} units/s",
        beside=f"ours {ours:,.0f} units/s, {ours / taken.units_per_s:.1f} x",
        reach=f"{reach:.1f} x" if reach else "",
        met=ours >= reach * taken.units_per_s if reach else None,
    )


def _killed_beside(setting: Setting, peer: others.Peer) -> Row:
    name = f"peer: {peer.name}, SIGKILL at half"
    taken = others.crash_peer(peer, setting.base, engine.CRASH_UNITS, engine.CRASH_UNIT_S)
    if taken.skipped:
        return Row(name=name, figure=taken.skipped)
    ours = measure.repeat(setting.times, lambda: engine.crash(setting.base).over_ideal_s)
    reach = peer.crash_reach
    return Row(
        name=name,
        figure=f"{taken.over_ideal_s:.2f} s over the ideal",
        beside=f"ours {ours:.2f} s, {ours / taken.over_ideal_s:.2f} x; it executed {taken.executed}",
        reach=f"<= {reach:.2f} x" if reach else "",
        met=ours <= reach * taken.over_ideal_s if reach else None,
    )


def _cold_beside(setting: Setting) -> Row:
    name = "peer: luigi, one step, cold"
    luigi = others.measure_peer(others.LUIGI, "noop", setting.base, 1, setting.times * 2)
    if luigi.skipped:
        return Row(name=name, figure=luigi.skipped)
    ours = engine.median_run(setting.base, "run: [/bin/true]", 0, setting.times * 2).wall_s
    return Row(
        name=name,
        figure=f"{luigi.wall_s * 1e3:.0f} ms",
        beside=f"ours {ours * 1e3:.0f} ms, {ours / luigi.wall_s:.2f} x",
        reach=f"<= {others.LUIGI_COLD:.2f} x",
        met=ours <= others.LUIGI_COLD * luigi.wall_s,
    )


PARTS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "limits": raw_limits,
    "cold": cold,
    "noop": noop_units,
    "commands": commands,
    "crash": crash,
    "peers": peers,
}


def show(row: Row) -> None:
    """Print one line at once: a long run should not be silent."""
    verdict = {None: "", True: "met", False: "NOT MET"}[row.met]
    print(f"{row.name:<38} {row.figure:<24} {row.beside:<58} {row.reach:<22} {verdict}".rstrip(), flush=True)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="./dev bench", description="Measure interlock on this machine.")
    parser.add_argument("--times", type=int, default=5, help="runs of each measure; the median counts")
    parser.add_argument("--only", choices=[*PARTS], action="append", help="measure this part only; may be repeated")
    parser.add_argument("--quick", action="store_true", help="a tenth of the no-op units")
    parser.add_argument("--dir", type=Path, default=ROOT / "build", help="a folder on the disk to measure")
    return parser.parse_args()


def main() -> int:
    """Print the table."""
    given = arguments()
    given.dir.mkdir(parents=True, exist_ok=True)
    cores = os.cpu_count()
    print(f"Python {platform.python_version()}, {platform.system()} {platform.release()}, {cores} cores")
    print(f"{'work':<38} {'interlock':<24} {'beside':<58} {'must reach':<22}")
    failed = False
    with tempfile.TemporaryDirectory(prefix="bench-", dir=given.dir) as base:
        setting = Setting(base=Path(base), times=given.times, quick=given.quick)
        for name in given.only or PARTS:
            try:
                for row in PARTS[name](setting):
                    show(row)
            except measure.FailedError as error:
                failed = True
                print(f"{name}: could not be measured: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
