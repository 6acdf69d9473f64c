"""Luigi: N tasks of a KIND with a marker file each, which is how it knows what is done. Prints units per second."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import luigi
from work import KINDS


class Unit(luigi.Task):
    """One unit."""

    kind = luigi.Parameter()
    number = luigi.IntParameter()
    folder = luigi.Parameter()

    def output(self) -> luigi.LocalTarget:
        """Return the marker."""
        return luigi.LocalTarget(str(Path(self.folder) / f"luigi-{self.number}"))

    def run(self) -> None:
        """Do it, and write the marker."""
        KINDS[self.kind](self.folder)
        with self.output().open("w"):
            pass


def main(kind: str, units: int, folder: str) -> None:
    """Measure the whole build."""
    began = time.perf_counter()
    luigi.build(
        [Unit(kind=kind, number=i, folder=folder) for i in range(units)], local_scheduler=True, log_level="ERROR"
    )
    print(units / (time.perf_counter() - began))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
