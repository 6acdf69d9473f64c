"""Luigi: N no-op tasks with a marker file each, which is how it knows what is done. Prints units per second."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import luigi


class Noop(luigi.Task):
    """One unit."""

    number = luigi.IntParameter()
    folder = luigi.Parameter()

    def output(self) -> luigi.LocalTarget:
        """Return the marker."""
        return luigi.LocalTarget(str(Path(self.folder) / f"luigi-{self.number}"))

    def run(self) -> None:
        """Write the marker."""
        with self.output().open("w"):
            pass


def main(units: int, folder: str) -> None:
    """Measure the whole build."""
    began = time.perf_counter()
    luigi.build([Noop(number=i, folder=folder) for i in range(units)], local_scheduler=True, log_level="ERROR")
    print(units / (time.perf_counter() - began))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
