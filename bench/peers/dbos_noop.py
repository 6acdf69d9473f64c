"""DBOS on SQLite: one workflow that runs N no-op steps, each recorded. Prints units per second."""

from __future__ import annotations

import sys
import time

from dbos import DBOS


@DBOS.step()
def noop() -> None:
    """Do nothing."""


@DBOS.workflow()
def many(units: int) -> None:
    """Run the steps one after the other, as DBOS does inside one workflow."""
    for _ in range(units):
        noop()


def main(units: int, folder: str) -> None:
    """Measure from launch to the workflow's end."""
    began = time.perf_counter()
    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{folder}/dbos.sqlite", "log_level": "ERROR"})
    DBOS.launch()
    many(units)
    print(units / (time.perf_counter() - began))
    DBOS.destroy()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
