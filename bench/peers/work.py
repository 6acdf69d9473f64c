"""The units that all engines are measured with: `noop` does nothing, `true` runs /bin/true, `nap` takes 5 ms and leaves a dot."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

NAP_S = 0.005


def noop(_folder: str) -> None:
    """Do nothing."""


def true(_folder: str) -> None:
    """Run the program, its output captured."""
    subprocess.run(["/bin/true"], capture_output=True, check=True)


def nap(folder: str) -> None:
    """Sleep, then count: what was done twice is two dots."""
    time.sleep(NAP_S)
    with (Path(folder) / "counter").open("ab", 0) as file:
        file.write(b".")


KINDS = {"noop": noop, "true": true, "nap": nap}
