"""Other engines on the same work, where they are installed (dependency group `bench-peers`); else why not."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from bench import measure

HERE = Path(__file__).resolve().parent / "peers"
_POLL_S = 0.001


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """An engine to compare with, and what ours must be beside it, whatever the machine.

    Each `reach` is what is asked for over the peer's own figure where that was set: 8,000 no-op units/s, on a machine where
    DBOS did 660 and LangGraph 490; 0.4 s lost by a SIGKILL, where they lost 3.0 and 1.3. None where nothing was asked for.
    """

    name: str
    places: int
    """How many units run side by side."""
    units: int
    reach: float | None = None
    crash_reach: float | None = None

    @property
    def script(self) -> Path:
        """What runs so many units of a kind."""
        return HERE / f"{self.name}_units.py"

    @property
    def missing(self) -> str:
        """Why it cannot be measured, or nothing."""
        there = importlib.util.find_spec(self.name) is not None
        return "" if there else "not installed (uv pip install --group bench-peers)"


DBOS = Peer(
    name="dbos",
    places=1,
    units=10_000,
    reach=8_000 / 660,
    crash_reach=0.4 / 3.0,
)
LANGGRAPH = Peer(
    name="langgraph",
    places=8,
    units=10_000,
    reach=8_000 / 490,
    crash_reach=0.4 / 1.3,
)
# ten times as many take it a hundred times as long
LUIGI = Peer(name="luigi", places=1, units=1_000)
PEERS = (DBOS, LANGGRAPH, LUIGI)
TABLE_LOOP_PER_S = 3_180
"""`/bin/true` by `subprocess.run` in 8 threads, a second, on the machine where bars and peers were measured for them."""
LUIGI_COLD = 150 / 116
"""Milliseconds that a one-step workflow may take, over Luigi's where that was set."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A peer's rate and the seconds of its whole process, as medians, or why there are none."""

    units_per_s: float = 0.0
    wall_s: float = 0.0
    skipped: str = ""


def measure_peer(peer: Peer, kind: str, base: Path, units: int, times: int) -> Taken:
    """Run the peer's script in a process of its own, several times."""
    if peer.missing:
        return Taken(skipped=peer.missing)
    rates, walls = [], []
    for _ in range(times):
        with tempfile.TemporaryDirectory(dir=base) as folder:
            argv = [sys.executable, str(peer.script), kind, str(units), folder]
            began = time.perf_counter()
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            walls.append(time.perf_counter() - began)
        if done.returncode != 0:
            return Taken(skipped=f"failed: {_last_line(done.stderr)}")
        rates.append(float(done.stdout.split()[-1]))
    return Taken(units_per_s=measure.median(rates), wall_s=measure.median(walls))


class Killed(msgspec.Struct, frozen=True, kw_only=True):
    """What a SIGKILL at half cost a peer, or why that is not known."""

    over_ideal_s: float = 0.0
    executed: int = 0
    skipped: str = ""


def crash_peer(peer: Peer, base: Path, units: int, unit_s: float) -> Killed:
    """Kill the peer when half of the units left their dot, start it again, and count the dots."""
    if peer.missing:
        return Killed(skipped=peer.missing)
    with tempfile.TemporaryDirectory(dir=base) as folder:
        argv = [sys.executable, str(peer.script), "nap", str(units), folder]
        counter = Path(folder, "counter")
        began = time.perf_counter()
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while not counter.exists() or counter.stat().st_size < units // 2:
                if process.poll() is not None:
                    return Killed(skipped="failed: it ended before half of the units were done")
                time.sleep(_POLL_S)
            process.send_signal(signal.SIGKILL)
        done = subprocess.run([*argv, "--resume"], capture_output=True, text=True, check=False)
        took = time.perf_counter() - began
        if done.returncode != 0:
            return Killed(skipped=f"failed: {_last_line(done.stderr)}")
        return Killed(over_ideal_s=took - units * unit_s / peer.places, executed=counter.stat().st_size)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no error text"])[-1][:100]
