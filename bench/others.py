"""Other engines on the same work, where they are installed (dependency group `bench-peers`); else why not."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from bench import measure

HERE = Path(__file__).resolve().parent / "peers"


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """An engine to compare with. `reach` is how many times its rate ours must be, whatever the machine; 0 for no matter.

    It is the rate that is asked for over the peer's own where that rate was set: 8,000 units/s, on a machine where DBOS
    did 660 and LangGraph 490.
    """

    name: str
    units: int
    reach: float = 0.0

    @property
    def script(self) -> Path:
        """What runs so many no-op units."""
        return HERE / f"{self.name}_noop.py"


PEERS = (
    Peer(name="dbos", units=10_000, reach=8_000 / 660),
    Peer(name="langgraph", units=10_000, reach=8_000 / 490),
    # ten times as many take it a hundred times as long
    Peer(name="luigi", units=1_000),
)
LUIGI_COLD = 150 / 116
"""Milliseconds that a one-step workflow may take, over Luigi's where that was set."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A peer's rate and the seconds of its whole process, as medians, or why there are none."""

    units_per_s: float = 0.0
    wall_s: float = 0.0
    skipped: str = ""


def measure_peer(peer: Peer, base: Path, units: int, times: int) -> Taken:
    """Run the peer's script in a process of its own, several times."""
    if importlib.util.find_spec(peer.name) is None:
        return Taken(skipped="not installed (uv pip install --group bench-peers)")
    rates, walls = [], []
    for _ in range(times):
        with tempfile.TemporaryDirectory(dir=base) as folder:
            argv = [sys.executable, str(peer.script), str(units), folder]
            began = time.perf_counter()
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            walls.append(time.perf_counter() - began)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no error text"])[-1]
            return Taken(skipped=f"failed: {last[:100]}")
        rates.append(float(done.stdout.split()[-1]))
    return Taken(units_per_s=measure.median(rates), wall_s=measure.median(walls))
