"""What is asked of a project besides running: old runs removed, plans, schema, secrets, changed modules."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.cli.waiting import until
from tests.store import builders as b
from tests.store.test_giving_back import ended

from interlock.driver.clock import SystemClock
from interlock.driver.lease import fresh, this_host
from interlock.store.sqlite import SqliteStore

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]


def test_old_runs_are_removed_and_named_first_when_asked(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    interlock("run", str(flow()), cwd=tmp_path)
    (run,) = json.loads(interlock("list", "--json", cwd=tmp_path).stdout)
    until(lambda: "would remove 1 run " in interlock("gc", "--older-than", "1ms", "--dry-run", cwd=tmp_path).stdout)
    assert json.loads(interlock("gc", "--older-than", "1ms", "--json", cwd=tmp_path).stdout) == {
        "schema": 1,
        "runs": [run["id"]],
        "kept": [],
        "artifacts": 0,
        "worktrees": [],
        "journal": {"given_back_bytes": 0, "free_bytes": 0, "why": ""},
    }
    assert interlock("list", "--json", cwd=tmp_path).stdout == "[]\n"


def test_the_room_that_removed_runs_took_goes_back_to_the_disk_when_nobody_is_kept_waiting(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    interlock("run", str(flow()), cwd=tmp_path)
    journal = tmp_path / ".interlock" / "journal.db"
    with SqliteStore.open(journal) as store:
        ended(store, "large", 4_000)
        mine = fresh("driven", 1, this_host(), SystemClock())
        store.create_run(b.new_run("driven"), mine)
    size = journal.stat().st_size
    (removed, kept, counted) = interlock("gc", cwd=tmp_path).stdout.splitlines()
    assert (removed, counted) == ("removed run large", "removed 1 run and 0 artifacts")
    assert re.fullmatch(r"kept [1-9][0-9.]* MiB in the journal for later runs: a run is driven", kept)
    assert journal.stat().st_size == size
    with SqliteStore.open(journal) as store:
        store.release(mine)
    (given, counted) = interlock("gc", cwd=tmp_path).stdout.splitlines()
    assert counted == "removed 0 runs and 0 artifacts"
    assert re.fullmatch(r"gave [1-9][0-9.]* MiB of the journal back to the disk", given)
    assert journal.stat().st_size < size / 4
    assert {run["id"] for run in json.loads(interlock("list", "--json", cwd=tmp_path).stdout)} >= {"driven"}


def test_removing_old_runs_keeps_every_artifact_that_a_run_may_still_need(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    path = flow("id: large, run: 'head -c 100000 /dev/zero | tr \\0 x'", "id: bad, run: test -e mended")
    interlock("run", str(path), cwd=tmp_path)
    (artifact,) = (tmp_path / ".interlock" / "artifacts").iterdir()
    stray = artifact.with_name("sha256-00")
    stray.touch()
    for old in (artifact, stray):
        os.utime(old, (1, 1))
    removed = json.loads(interlock("gc", "--json", cwd=tmp_path).stdout)
    assert (removed["artifacts"], stray.exists()) == (1, False)
    (tmp_path / "mended").touch()
    assert interlock("resume", "last", cwd=tmp_path).returncode == 0


def test_a_plan_says_what_would_run_and_what_would_be_reused(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    path = flow("id: bad, run: exit 1")
    fresh = json.loads(interlock("plan", str(path), "--json", cwd=tmp_path).stdout)
    assert ([unit["id"] for unit in fresh["run"]], fresh["reuse"]) == (["greet:solo", "bad:solo"], [])
    interlock("run", str(path), cwd=tmp_path)
    again = json.loads(interlock("plan", "last", "--json", cwd=tmp_path).stdout)
    assert [unit["id"] for unit in again["reuse"]] == ["greet:solo"]
    assert [unit["id"] for unit in again["run"]] == ["bad:solo"]


def test_the_schema_of_the_front_matter_is_json(interlock: Interlock, tmp_path: Path) -> None:
    assert "$schema" in json.loads(interlock("schema").stdout)
    interlock("schema", "--out", "deep/s.json", cwd=tmp_path)
    assert json.loads((tmp_path / "deep" / "s.json").read_text(encoding="utf-8"))["$schema"]


def test_the_schema_beside_the_journal_leaves_the_folder_private(interlock: Interlock, tmp_path: Path) -> None:
    assert interlock("schema", "--out", ".interlock/s.json", cwd=tmp_path).returncode == 0
    state = tmp_path / ".interlock"
    assert json.loads((state / "s.json").read_text(encoding="utf-8"))["$schema"]
    assert (state.stat().st_mode & 0o777, (state / ".gitignore").read_text(encoding="utf-8")) == (0o700, "*\n")
    assert interlock("doctor", cwd=tmp_path).returncode == 0


def test_reading_creates_nothing(interlock: Interlock, tmp_path: Path) -> None:
    for arguments in (("list",), ("status",), ("config",), ("doctor",), ("gc", "--dry-run"), ("events", "last")):
        interlock(*arguments, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
