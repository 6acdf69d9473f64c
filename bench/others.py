"""Other engines on the same work, where they are installed (dependency group `bench-peers`); else why not."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

PEERS = {"dbos": "dbos_noop.py", "langgraph": "langgraph_noop.py", "luigi": "luigi_noop.py"}
HERE = Path(__file__).resolve().parent / "peers"
UNITS = 1_000


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A peer's rate, or the reason why there is none."""

    name: str
    units_per_s: float | None = None
    skipped: str = ""


def measure_peer(name: str, base: Path, times: int) -> Peer:
    """Run the peer's script in a process of its own, several times, and keep the median."""
    if importlib.util.find_spec(name) is None:
        return Peer(name=name, skipped="not installed (uv pip install --group bench-peers)")
    rates = []
    for _ in range(times):
        with tempfile.TemporaryDirectory(dir=base) as folder:
            argv = [sys.executable, str(HERE / PEERS[name]), str(UNITS), folder]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no error text"])[-1]
            return Peer(name=name, skipped=f"failed: {last[:100]}")
        rates.append(float(done.stdout.split()[-1]))
    return Peer(name=name, units_per_s=sorted(rates)[len(rates) // 2])
