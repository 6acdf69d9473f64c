"""DBOS on SQLite: one workflow that runs N steps of a KIND one after the other, each recorded. Prints units per second.

Called again with `--resume` in the same folder it recovers the workflow that was under way.
"""

from __future__ import annotations

import sys
import time

from dbos import DBOS, SetWorkflowID
from work import KINDS

WORKFLOW = "whole"


@DBOS.step()
def step(kind: str, folder: str) -> None:
    """Do one unit."""
    KINDS[kind](folder)


@DBOS.workflow()
def many(kind: str, units: int, folder: str) -> None:
    """Run the steps one after the other, as DBOS does inside one workflow."""
    for _ in range(units):
        step(kind, folder)


def main(kind: str, units: int, folder: str, *, resume: bool) -> None:
    """Measure from launch to the workflow's end."""
    began = time.perf_counter()
    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{folder}/dbos.sqlite", "log_level": "ERROR"})
    DBOS.launch()
    if resume:
        DBOS.retrieve_workflow(WORKFLOW).get_result()
    else:
        with SetWorkflowID(WORKFLOW):
            many(kind, units, folder)
    print(units / (time.perf_counter() - began))
    DBOS.destroy()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], resume="--resume" in sys.argv)
