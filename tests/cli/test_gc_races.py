"""`gc` beside drivers in other processes: nothing is taken from under one, also not from one that only starts."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cli.waiting import until

import interlock as api
from interlock.app import App
from interlock.cli import program
from interlock.cli.commands import list as listing
from interlock.dispatch.git.base import WorktreeAsk
from interlock.dispatch.git.trees import Trees
from interlock.driver.forking import ForkOrder
from interlock.errors import StoreError
from interlock.store.base import RunRow
from interlock.store.faults import full
from interlock.store.sqlite import SqliteStore

Call = Callable[..., "subprocess.CompletedProcess[str]"]
HELD = """
import sys, time
from pathlib import Path

import interlock.store.sqlite as sqlite
from interlock.cli import entry

here, held = Path(sys.argv.pop(1)), set()
commit = sqlite.SqliteStore.commit


def slow(self, *rest, **named):
    # the lease is taken and the run as it was before
    if not held:
        held.add(1)
        (here / "held").touch()
        deadline = time.monotonic() + 60
        while not (here / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
    return commit(self, *rest, **named)


sqlite.SqliteStore.commit = slow
entry.main()
"""


@contextlib.contextmanager
def held_before_its_first_commit(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A driver in a process of its own that has taken the lease and has not written anything."""
    driver = subprocess.Popen(
        [sys.executable, "-c", HELD, str(folder), *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        until((folder / "held").exists)
        yield driver
    finally:
        driver.kill()
        driver.communicate()


def ended(flow: Callable[..., Path], call: Call, folder: Path) -> str:
    """A run that failed a moment ago."""
    path = flow("id: bad, run: test -e mended")
    assert call("run", str(path), cwd=folder).returncode == 1
    (run,) = json.loads(call("list", "--json", cwd=folder).stdout)
    until(lambda: "would remove 1 run " in call("gc", "--older-than", "1ms", "--dry-run", cwd=folder).stdout)
    (folder / "mended").touch()
    return str(run["id"])


def test_a_run_that_a_live_resume_holds_is_kept_and_gc_says_so(
    flow: Callable[..., Path], interlock: Call, tmp_path: Path
) -> None:
    run_id = ended(flow, interlock, tmp_path)
    with held_before_its_first_commit(tmp_path, "resume", run_id) as driver:
        (row,) = json.loads(interlock("list", "--json", cwd=tmp_path).stdout)
        assert row["state"] == "failed"
        kept = f"kept: run {run_id} is driven by pid {driver.pid} on {os.uname().nodename}\n"
        would = interlock("gc", "--older-than", "1ms", "--dry-run", cwd=tmp_path)
        assert (would.returncode, would.stdout) == (0, kept + "would remove 0 runs and 0 artifacts\n")
        done = interlock("gc", "--older-than", "1ms", cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, kept + "removed 0 runs and 0 artifacts\n", "")
        (tmp_path / "go").touch()
        said, _ = driver.communicate(timeout=60)
        assert driver.returncode == 0, said
    assert (tmp_path / ".interlock" / "logs" / f"{run_id}.log").exists()
    until(lambda: f"removed run {run_id}" in interlock("gc", "--older-than", "1ms", cwd=tmp_path).stdout)


def test_a_run_whose_driver_was_killed_is_removed(flow: Callable[..., Path], interlock: Call, tmp_path: Path) -> None:
    run_id = ended(flow, interlock, tmp_path)
    with held_before_its_first_commit(tmp_path, "resume", run_id):
        pass
    assert f"removed run {run_id}\n" in interlock("gc", "--older-than", "1ms", cwd=tmp_path).stdout


def test_a_run_that_a_reopened_fork_takes_from_is_kept(
    flow: Callable[..., Path], interlock: Call, tmp_path: Path
) -> None:
    old = ended(flow, interlock, tmp_path)
    (tmp_path / "mended").unlink()
    assert interlock("fork", old, cwd=tmp_path).returncode == 1
    fork = json.loads(interlock("list", "--json", cwd=tmp_path).stdout)[0]["id"]
    with held_before_its_first_commit(tmp_path, "resume", fork) as driver:
        until(lambda: len(interlock("gc", "--older-than", "1ms", "--dry-run", cwd=tmp_path).stdout.splitlines()) == 3)
        place = f"driven by pid {driver.pid} on {os.uname().nodename}"
        kept = [f"run {fork} is {place}", f"run {old} is needed by its fork {fork}, which is {place}"]
        report = json.loads(interlock("gc", "--older-than", "1ms", "--json", cwd=tmp_path).stdout)
        assert report["kept"] == [{"run": run, "why": why} for run, why in zip((fork, old), kept, strict=True)]
        assert report["runs"] == []


def test_a_fork_whose_source_goes_while_it_is_being_made_is_not_made(
    flow: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = flow("id: bad, run: exit 1")
    with api.open(tmp_path) as app:
        old = app.run_file(path).run_id
        compiled = App._compile  # noqa: SLF001 - a place between the look at the old run and the fork's birth

        def beside(self: App, *rest: Any) -> object:
            with api.open(tmp_path) as other:
                assert other.gc(older_than_ms=-1_000).runs == (old,)
            return compiled(self, *rest)

        monkeypatch.setattr(App, "_compile", beside)
        with pytest.raises(StoreError, match=f"there is no run {old}"):
            app.fork(ForkOrder(run=old))
        assert app.store.runs() == []


def test_a_list_is_whole_though_runs_go_while_it_is_written(
    flow: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = flow("id: bad, run: exit 1")
    with api.open(tmp_path) as app:
        old = app.run_file(path).run_id
        views = listing._views  # noqa: SLF001 - a place between the look at the runs and at what each is

        def beside(own: App, rows: Sequence[RunRow]) -> Iterator[dict[str, Any]]:
            assert app.gc(older_than_ms=-1_000).runs == (old,)
            app.run_file(path)
            return views(own, [*rows, *own.store.runs()])

        monkeypatch.setattr(listing, "_views", beside)
        assert program.run(["--project", str(tmp_path), "list", "--json"]) == 0
        told = capfd.readouterr()
        assert [run["id"] for run in json.loads(told.out)] == [run.id for run in app.store.runs()]
        assert told.err == ""


def with_worktree(flow: Callable[..., Path], call: Call, folder: Path) -> tuple[str, Path]:
    """A run that failed a moment ago, and an unchanged worktree of it."""
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=folder, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
    run_id = ended(flow, call, folder)
    path = folder / ".interlock" / "worktrees" / run_id / "bad.solo" / "2"
    ref = f"refs/interlock/{run_id}/bad.solo/2"
    with contextlib.closing(Trees(os.environ)) as trees:
        trees.prepare(WorktreeAsk(root=str(folder), commit=head.stdout.strip(), path=str(path), ref=ref))
    return run_id, path


def test_a_worktree_that_a_live_resume_may_need_is_kept(
    flow: Callable[..., Path], interlock: Call, tmp_path: Path
) -> None:
    run_id, path = with_worktree(flow, interlock, tmp_path)
    asked = ("gc", "--json")
    with held_before_its_first_commit(tmp_path, "resume", run_id):
        for more in (["--dry-run"], []):
            assert json.loads(interlock(*asked, *more, cwd=tmp_path).stdout)["worktrees"] == []
        assert path.exists()
    for more in (["--dry-run"], []):
        assert json.loads(interlock(*asked, *more, cwd=tmp_path).stdout)["worktrees"] == [str(path)]
    assert not path.exists()


def test_on_a_full_disk_a_worktree_stays_and_the_rest_is_done(
    flow: Callable[..., Path], interlock: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, path = with_worktree(flow, interlock, tmp_path)

    def no_room(_store: SqliteStore, _lease: object, _over: object) -> bool:
        raise full(tmp_path)

    monkeypatch.setattr(SqliteStore, "take_lease", no_room)
    with api.open(tmp_path) as app:
        assert app.gc(older_than_ms=60_000).worktrees == ()
        assert path.exists()
        # of a run that is gone nobody has to be kept off
        report = app.gc(older_than_ms=-1_000)
    assert (report.runs, report.worktrees) == ((run_id,), (str(path),))
