"""A run of a hundred thousand units: exported, verified and opened in little memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.export.files import new_run
from tests.store import builders as b

from interlock.model import canon
from interlock.model import events as ev
from interlock.model.states import RunState
from interlock.store.sqlite import SqliteStore

UNITS = 100_000
AT_ONCE = 2_000
MOST_MIB = 160
CODE = """
import sys
from pathlib import Path
from interlock.driver.export import exporting
from interlock.driver.export import importing
journal, file = Path(sys.argv[2]), Path(sys.argv[3])
if sys.argv[1] == "export":
    with exporting.new_file(file, force=False) as out:
        print(exporting.export_run(journal, journal.parent / "logs", sys.argv[4], out).lines)
elif sys.argv[1] == "verify":
    print(importing.verify_export(file).lines)
else:
    with importing.open_export(file) as opened:
        print(sum(1 for unit in opened.store.units(sys.argv[4]) if unit.state == "completed"))
"""
PLAN = b'{"params":[{"name":"p","secret":true,"default_json":"\\"hidden-word\\""}]}'
"""Each text is searched for the value, which takes more of everything than an export without secrets."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_thousand_units_take_bounded_memory(tmp_path: Path) -> None:
    fill(tmp_path / "journal.db", PLAN)
    said = {what: run(what, tmp_path) for what in ("export", "verify", "open")}
    assert said["export"][0] == said["verify"][0] > 3 * UNITS
    assert said["open"][0] == UNITS
    assert {what: mib for what, (_, mib) in said.items() if mib >= MOST_MIB} == {}


def fill(path: Path, plan: bytes) -> None:
    with SqliteStore.open(path) as store:
        mine = new_run(store, plan=plan)
        items = [canon.dumps({"number": n, "text": "x" * 20}) for n in range(UNITS)]
        units = tuple(
            ev.NewUnit(n, f"s0:{canon.item_digest(item)}", n, item, f"sha256.v1:{n:064x}", None)
            for n, item in enumerate(items)
        )
        store.commit(mine, [ev.StepStarted(at=20, step=0, round=1, loop=1, units=units)])
        for start in range(0, UNITS, AT_ONCE):
            some = range(start, start + AT_ONCE)
            store.commit(mine, [event for n in some for event in (b.reserved(n), b.finished(n, result=items[n]))])
        store.commit(mine, [b.completed(b"[" + b",".join(items) + b"]"), b.run_moved(RunState.COMPLETED, outcome="ok")])
        store.release(mine)


def run(what: str, folder: Path) -> tuple[int, float]:
    """Do it in a process of its own; return what it counted and the most memory that it took, in MiB."""
    measured = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], capture_output=True, text=True, check=True)\n"
        "print(done.stdout.strip(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    inner = [sys.executable, "-c", CODE, what, str(folder / "journal.db"), str(folder / "run.gz"), b.RUN]
    outer = [sys.executable, "-c", measured, *inner]
    done = subprocess.run(outer, capture_output=True, text=True, check=True, timeout=300)
    counted, kib = done.stdout.split()
    return int(counted), int(kib) / 1024
