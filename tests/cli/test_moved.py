"""Projects that were moved or copied with their journals: what goes on where, and that nobody else's work is touched."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.waiting import until

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str]"]
ASKING = """---
steps:
  - { id: ask, run: echo x, gate: { approval: true } }
  - { id: work, run: echo done >> out }
---
"""
FLOW = """---
steps:
  - { id: first, run: echo first >> out }
  - { id: second, run: 'echo begun >> out; until test -e open; do sleep 0.02; done; echo done >> out' }
---
"""
ENDED = "first\nbegun\nbegun\ndone\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "interlock.toml").touch()
    (root / "flow.md").write_text(FLOW, encoding="utf-8")
    return root


@pytest.fixture
def start(begin: Callable[..., subprocess.Popen[Any]]) -> Start:
    """Starts the program and returns once its second step works, for the `times`-th time."""

    def call(root: Path, target: str, times: int) -> subprocess.Popen[str]:
        process = begin("run", target, cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        def works() -> bool:
            assert process.poll() is None, process.communicate()
            return (root / "out").exists() and (root / "out").read_text(encoding="utf-8").count("begun") >= times

        until(works)
        return process

    return call


@pytest.fixture
def interrupted(project: Path, start: Start, interlock: Interlock) -> str:
    """A run of the project whose first step is done and whose second was stopped; its id."""
    process = start(project, "flow.md", 1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    return interlock("list", "--json", cwd=project).stdout.split('"id":"')[1].split('"')[0]


def test_a_copy_neither_drives_the_original_s_run_nor_ends_its_work(
    project: Path, interrupted: str, start: Start, interlock: Interlock
) -> None:
    copy = project.with_name("a copy")
    shutil.copytree(project, copy)
    original = start(project, "last", 2)
    for verb in ("run", "resume"):
        refused = interlock(verb, "last", cwd=copy)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == (
            f"error: run {interrupted} belongs to {project}, and this project, {copy}, is a copy of it\n"
            f"hint: go on there: interlock --project {project} run {interrupted}, or take over here what is done: "
            f"interlock fork {interrupted} --from second, or start anew: interlock run flow.md\n"
        )
    # what ends a run ends what it left running: here that is the original's
    assert interlock("abandon", "last", cwd=copy).returncode == 0
    assert original.poll() is None
    (project / "open").touch()
    told, wrong = original.communicate(timeout=30)
    assert (original.returncode, (project / "out").read_text(encoding="utf-8")) == (0, ENDED), told + wrong
    assert (copy / "out").read_text(encoding="utf-8") == "first\nbegun\n"


def test_a_copy_says_where_its_run_goes_on_and_can_take_over_what_is_done(
    project: Path, interrupted: str, interlock: Interlock
) -> None:
    copy = project.with_name("a copy")
    shutil.copytree(project, copy)
    there = f"interlock --project {project} status {interrupted}"
    assert f"next: {there}  # it belongs to that folder, not this one\n" in interlock("status", cwd=copy).stdout
    assert interlock(*there.split()[1:], cwd=copy).returncode == 0
    (copy / "open").touch()
    fork = interlock("fork", "last", "--from", "second", cwd=copy)
    assert fork.returncode == 0, fork.stderr
    assert (copy / "out").read_text(encoding="utf-8") == ENDED
    assert (project / "out").read_text(encoding="utf-8") == "first\nbegun\n"


def test_a_run_of_a_moved_project_goes_on_once_it_is_back(
    project: Path, interrupted: str, interlock: Interlock
) -> None:
    moved = project.rename(project.with_name("moved"))
    (moved / "open").touch()
    refused = interlock("run", "last", cwd=moved)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"error: run {interrupted} was frozen in {project}, which is gone or leads elsewhere now\n"
        f"hint: put the directory back at {project}, or take over here what is done: "
        f"interlock fork {interrupted} --from second, or start anew: interlock run flow.md\n"
    )
    moved.rename(project)
    assert interlock("run", "last", cwd=project).returncode == 0
    assert (project / "out").read_text(encoding="utf-8") == ENDED


def test_what_status_offers_where_a_project_was_moved_to_works(
    project: Path, interrupted: str, interlock: Interlock
) -> None:
    moved = project.rename(project.with_name("moved"))
    fork = f"interlock fork {interrupted} --from second"
    why = f"do here what is left; the run itself goes on in {project} only: put the project back"
    assert interlock("status", cwd=moved).stdout.endswith(f"next: {fork}  # {why}\n")
    # a link in its place leads elsewhere as well
    project.symlink_to(moved)
    assert interlock("status", cwd=project).stdout.endswith(f"next: {fork}  # {why}\n")
    (moved / "open").touch()
    assert interlock(*fork.split()[1:], cwd=moved).returncode == 0
    assert (moved / "out").read_text(encoding="utf-8") == ENDED


def test_a_person_answers_where_a_project_was_moved_to_but_not_in_a_copy(project: Path, interlock: Interlock) -> None:
    (project / "flow.md").write_text(ASKING, encoding="utf-8")
    assert interlock("run", "flow.md", cwd=project).returncode == 4
    run = interlock("status", cwd=project).stdout.split()[0]
    copy = project.with_name("copy")
    shutil.copytree(project, copy)
    for verb in ("approve", "reject"):
        refused = interlock(verb, "last", "--note", "x", cwd=copy)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr == (
            f"error: run {run} belongs to {project}, and this project, {copy}, is a copy of it\n"
            f"hint: answer it there: interlock --project {project} status {run}\n"
        )
    moved = project.rename(project.with_name("moved"))
    approved = interlock("approve", "last", cwd=moved)
    assert (approved.returncode, approved.stdout.startswith(f"approved; run {run}\n")) == (0, True), approved
    # nothing has to be dispatched for the gate to pass; what comes next is refused
    refused = interlock("run", "last", cwd=moved)
    assert f"take over here what is done: interlock fork {run} --from work," in refused.stderr
    moved.rename(project)
    assert interlock("run", "last", cwd=project).returncode == 0
    assert (project / "out").read_text(encoding="utf-8") == "done\n"


def test_a_driver_that_was_killed_before_its_project_was_moved_loses_nothing(
    project: Path, start: Start, interlock: Interlock
) -> None:
    process = start(project, "flow.md", 1)
    process.kill()
    process.communicate()
    moved = project.rename(project.with_name("moved"))
    refused = interlock("run", "last", cwd=moved)
    assert f"was frozen in {project}, which is gone or leads elsewhere now" in refused.stderr
    units = interlock("units", "last", "--json", cwd=moved).stdout
    assert [unit["state"] for unit in json.loads(units)] == ["completed", "running"], "nothing was settled from there"
    moved.rename(project)
    (project / "open").touch()
    assert interlock("run", "last", cwd=project).returncode == 0


def test_a_folder_that_shares_another_s_journal_is_not_where_its_runs_work(
    project: Path, interrupted: str, interlock: Interlock
) -> None:
    beside = project.with_name("beside")
    beside.mkdir()
    (beside / ".interlock").symlink_to(project / ".interlock")
    refused = interlock("run", "last", cwd=beside)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"error: run {interrupted} belongs to {project}, and this is {beside}\n"
        f"hint: go on there: interlock --project {project} run {interrupted}\n"
    )
