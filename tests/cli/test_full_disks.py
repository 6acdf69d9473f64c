"""A disk that fills up while a run is under way: what was done stays done, and the hint is the command that goes on."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.disks import small_disk

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
# 20 kB of each stream: their log is larger than the limit, their result alone is not
FLOW = """---
steps:
  - id: one
    run: |
      echo one >> marks
      {python} fill.py {mode} $PPID
      head -c 20000 /dev/zero | tr '\\0' x | tee /dev/stderr
      exit {code}
  - id: two
    run: echo two >> marks
---
"""
# once the journal says that the attempt runs, nothing is written until its end; the shell's parent is the driver
FILL = """
import sqlite3, sys, time
from resource import RLIM_INFINITY, RLIMIT_FSIZE, prlimit

journal = sqlite3.connect("file:.interlock/journal.db?mode=ro", uri=True)
while not journal.execute("SELECT 1 FROM attempt WHERE state = 'started'").fetchall():
    time.sleep(0.01)
journal.close()
if sys.argv[1] == "limit":
    prlimit(int(sys.argv[2]), RLIMIT_FSIZE, (32_768, RLIM_INFINITY))
else:
    try:
        with open("filler", "wb", buffering=0) as stream:
            while True:
                stream.write(bytes(4_096))
    except OSError:
        pass
"""
SAID = {
    "fill": (
        "no space left to write {}",
        "free some space; nothing that was recorded is lost",
        "No space left on device",
    ),
    "limit": (
        "reading or writing {} failed: disk I/O error",
        "check the disk (full, quota, unplugged, failing)",
        "File too large",
    ),
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Large enough for a journal and the room that a driver keeps."""
    with small_disk(tmp_path / "small", "4m") as place:
        yield place


def begin(interlock: Interlock, folder: Path, mode: str, code: int) -> list[str]:
    """Run until nothing more can be written; return what the hint says to do, and free some space."""
    if mode == "fill" and not folder.is_mount():
        pytest.skip("no disk can be mounted here")
    flow = FLOW.format(python=shlex.quote(sys.executable), mode=mode, code=code)
    (folder / "flow.md").write_text(flow, encoding="utf-8")
    (folder / "fill.py").write_text(FILL, encoding="utf-8")
    done = interlock("run", "flow.md", cwd=folder)
    assert done.returncode == 1, done.stdout
    (folder / "filler").unlink(missing_ok=True)
    (run,) = json.loads(interlock("list", "--json", cwd=folder).stdout)
    error, hint, why = SAID[mode]
    log = folder / ".interlock" / "logs" / f"{run['id']}.log"
    lacks = f"notice: the log {log} lacks some of what was said: it could not be written: {why}"
    assert done.stdout.splitlines()[-1] == lacks
    assert done.stderr.splitlines() == [
        f"error: {error.format(folder / '.interlock' / 'journal.db')}",
        f"hint: {hint}; then go on: interlock run {run['id']}",
    ]
    return ["run", str(run["id"])]


@pytest.mark.parametrize("mode", SAID)
def test_work_that_ended_well_on_a_full_disk_is_done_and_the_hint_goes_on_behind_it(
    interlock: Interlock, disk: Path, mode: str
) -> None:
    done = interlock(*begin(interlock, disk, mode, 0), cwd=disk)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (disk / "marks").read_text(encoding="utf-8").split() == ["one", "two"]
    units = json.loads(interlock("units", "last", "--json", cwd=disk).stdout)
    assert [(unit["state"], unit["attempt"]) for unit in units] == [("completed", 1)] * 2
    assert len(units[0]["result"]) == 20_000


@pytest.mark.parametrize("mode", SAID)
def test_work_that_failed_on_a_full_disk_failed_for_its_own_reason(interlock: Interlock, disk: Path, mode: str) -> None:
    done = interlock(*begin(interlock, disk, mode, 7), cwd=disk)
    assert done.returncode == 1, done.stdout + done.stderr
    (unit,) = json.loads(interlock("units", "last", "--json", "--state", "failed", cwd=disk).stdout)
    assert (unit["reason"], unit["attempt"]) == ("non_zero_exit", 1)
    assert (disk / "marks").read_text(encoding="utf-8").split() == ["one"]
