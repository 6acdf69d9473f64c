"""A driver at work while others look all the time: it keeps its lease, and each of them reads whole and true values."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from tests.cli.waiting import until

from interlock.model.run import Lease
from interlock.store.sqlite import SqliteStore

# a lease is renewed every 20 s; here it is every 50 ms, so that it happens while others look
PROGRAM = "from interlock.driver import lease; lease.RENEW_MS = 50; from interlock.cli.entry import main; main()"
FLOW = """---
params: { numbers: { type: array, items: { type: integer } } }
steps:
  - id: many
    map: { over: params.numbers, concurrency: 4 }
    run: sleep 0.01; echo "$INTERLOCK_ITEM"
  - id: last
    run: until test -e open; do sleep 0.05; done
---
"""
UNITS = 400
POLLERS = 3
ROUNDS = 2
Interlock = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A driver under way in the folder; its last step ends when `open` is there."""
    (tmp_path / "flow.md").write_text(FLOW, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "run", "flow.md", "-p", f"numbers={list(range(UNITS))}"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: leases(tmp_path) != [])
        yield process
    finally:
        process.kill()
        process.wait()


def leases(folder: Path) -> list[Lease]:
    """The leases of all runs."""
    store = SqliteStore.open_if_any(folder / ".interlock" / "journal.db")
    if store is None:
        return []
    with store:
        return [lease for run in store.runs() if (lease := store.read_lease(run.id))]


def look(interlock: Interlock, folder: Path) -> list[dict[str, Any]]:
    """Ask as scripts and people do; return what status said."""
    said: list[dict[str, Any]] = []
    for _ in range(ROUNDS):
        status, listed = interlock("status", "last", "--json", cwd=folder), interlock("list", "--json", cwd=folder)
        assert (status.returncode, status.stderr) == (listed.returncode, listed.stderr) == (0, "")
        said.append(json.loads(status.stdout))
        (run,) = json.loads(listed.stdout)
        assert (run["id"], run["state"]) == (said[-1]["run"]["id"], "active")
    text = interlock("status", cwd=folder)
    assert (text.returncode, text.stderr) == (0, "")
    assert text.stdout.startswith(f"{run['id']}  flow.md\nstate    active\n")
    return said


def test_a_holder_that_is_polled_under_load_keeps_its_lease_and_tells_the_truth(
    driver: subprocess.Popen[bytes], interlock: Interlock, tmp_path: Path
) -> None:
    held: list[Lease] = []
    with ThreadPoolExecutor(POLLERS + 1) as pool:
        pollers = [pool.submit(look, interlock, tmp_path) for _ in range(POLLERS)]
        rivals = pool.submit(lambda: [interlock("run", "last", cwd=tmp_path) for _ in range(ROUNDS)])
        looking: list[Future[Any]] = [*pollers, rivals]
        while not all(each.done() for each in looking):
            held += leases(tmp_path)
            wait(looking, timeout=0.05)
    said = [status for poller in pollers for status in poller.result()]
    assert len({lease.renewed_ms for lease in held}) > 3, "it was renewed meanwhile"
    assert len({status["census"]["completed"] for status in said}) > 2, "it worked meanwhile"
    ((holder, term),) = {(lease.holder, lease.term) for lease in held}
    assert {(status["run"]["lease"]["pid"], status["run"]["lease"]["holder"]) for status in said} == {
        (driver.pid, holder)
    }
    assert all(honest(status) for status in said)
    assert all(done.returncode == 5 and f"is driven by pid {driver.pid} on " in done.stderr for done in rivals.result())
    (tmp_path / "open").touch()
    assert driver.wait(60) == 0
    assert [(lease.holder, lease.term, lease.released) for lease in leases(tmp_path)] == [(holder, term, True)]


def honest(status: dict[str, Any]) -> bool:
    """Tell whether what it counts adds up, in whatever moment it looked."""
    many = status["steps"][0]["census"]
    return many["units"] in {0, UNITS} and many["completed"] <= UNITS and many["failed"] == many["not_run"] == 0
