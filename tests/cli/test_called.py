"""What a person is told to type works where he stands, and can be pasted whatever a path is made of."""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from interlock.cli import program

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def elsewhere(tmp_path: Path) -> tuple[Path, Path]:
    """A folder to stand in, and beside it a project whose run fails."""
    for name in ("here", "a project"):
        (tmp_path / name).mkdir()
    (tmp_path / "a project/flow.md").write_text("---\nsteps: [{ id: a, run: exit 3 }]\n---\n", encoding="utf-8")
    return tmp_path / "here", tmp_path / "a project"


def test_who_named_a_project_is_told_to_name_it_again(elsewhere: tuple[Path, Path], interlock: Interlock) -> None:
    here, _ = elsewhere
    done = interlock("--project", "../a project", "run", "../a project/flow.md", cwd=here)
    found = re.search(r"next: interlock (--project '../a project' resume \w+)", done.stdout)
    assert found is not None, done
    # what is printed is typed as it stands
    again = interlock(*shlex.split(found[1]), cwd=here)
    assert (again.returncode, again.stderr) == (1, "")
    unknown = interlock("--project", "../a project", "status", "last", "--artifact", "a", cwd=here)
    assert "hint: see interlock --project '../a project' status " in unknown.stderr


def test_who_stands_in_the_project_is_told_no_more_than_needed(
    elsewhere: tuple[Path, Path], interlock: Interlock
) -> None:
    _, project = elsewhere
    (project / "below").mkdir()
    (project / "interlock.toml").touch()
    done = interlock("--project", "..", "run", "../flow.md", cwd=project / "below")
    assert re.search(r"next: interlock resume \w+", done.stdout)


BLOCKED = """---
steps:
  - id: one
    run: "true"
    gate: { check: test -e open || exit 126 }
---
"""


@pytest.mark.parametrize("below", ["", "below/deeper"])
@pytest.mark.parametrize(
    ("name", "text", "spelled"),
    [
        ("flow.md", BLOCKED, "flow.md"),
        ("-it's mine.md", BLOCKED, """'{}-it'"'"'s mine.md'"""),
        ("top.md", "---\nsteps: [{ id: all, uses: ./flow.md }]\n---\n", "top.md"),
    ],
)
def test_a_workflow_that_is_to_be_started_anew_is_named_from_where_one_stands(
    name: str, text: str, spelled: str, below: str, tmp_path: Path, interlock: Interlock
) -> None:
    old, project = tmp_path / "old", tmp_path / "new"
    (old / below).mkdir(parents=True)
    (old / "interlock.toml").touch()
    (old / "flow.md").write_text(BLOCKED, encoding="utf-8")
    (old / name).write_text(text, encoding="utf-8")
    assert interlock("run", f"./{name}", cwd=old).returncode == 3
    old.rename(project)
    (project / "open").touch()
    refused = interlock("run", "last", cwd=project / below)
    up = "../../" if below else ""
    path = spelled.format(up or "./") if "{}" in spelled else f"{up}{spelled}"
    assert (
        refused.stderr.splitlines()[1] == f"hint: put the directory back at {old}, or start anew: interlock run {path}"
    )
    anew = interlock("run", *shlex.split(path), cwd=project / below)
    assert anew.returncode == 0, anew.stdout + anew.stderr


def test_from_far_away_a_workflow_is_named_in_full(tmp_path: Path, interlock: Interlock) -> None:
    far, old = tmp_path.joinpath(*"f" * 100), tmp_path / "old"
    far.mkdir(parents=True)
    old.mkdir()
    (old / "flow.md").write_text(BLOCKED, encoding="utf-8")
    assert interlock("--project", str(old), "run", str(old / "flow.md"), cwd=old).returncode == 3
    project = old.rename(tmp_path / "new")
    refused = interlock("--project", str(project), "run", "last", cwd=far)
    anew = f"interlock --project {project} run {project}/flow.md"
    assert refused.stderr.splitlines()[1] == f"hint: put the directory back at {old}, or start anew: {anew}"


def test_a_run_with_strange_parameters_can_only_be_started_anew(tmp_path: Path, interlock: Interlock) -> None:
    (tmp_path / "flow.md").write_text(BLOCKED, encoding="utf-8")
    assert interlock("run", "flow.md", cwd=tmp_path).returncode == 3
    with closing(sqlite3.connect(tmp_path / ".interlock/journal.db")) as raw, raw:
        raw.execute("UPDATE run SET params_json = ?", (b'{"who":"me"}',))
    refused = interlock("run", "last", cwd=tmp_path)
    (run,) = json.loads(interlock("list", "--json", cwd=tmp_path).stdout)
    assert refused.stderr.splitlines() == [
        f"error: the parameters stored for run {run['id']} do not fit its plan",
        "hint: start anew: interlock run flow.md",
    ]


def test_another_program_s_name_stands_in_the_place_of_interlock_s(
    elsewhere: tuple[Path, Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_CALLED_AS", "./dev run")
    assert program.run(["--project", str(elsewhere[0]), "status", "last"]) == 2
    assert f"hint: start one: ./dev run --project {elsewhere[0]} run FILE" in capfd.readouterr().err


def test_the_demo_of_another_repository_is_gone_on_with_from_where_one_stands(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    venv, repository = tmp_path / "venv", tmp_path / "a repository"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/interlock").write_text('#!/bin/sh\nprintf "%s\\n" "$INTERLOCK_CALLED_AS" "$@"\n', encoding="utf-8")
    (venv / "bin/interlock").chmod(0o755)
    locks = "".join((root / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "requirements.lock"))
    made_from = f"{sys.version} {sys.base_prefix}\n{root}\n{locks}"
    (venv / "requirements.lock.stamp").write_text(made_from, encoding="utf-8")
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    said = subprocess.run(
        [root / "dev", "demo", repository],
        cwd=tmp_path,
        env={**os.environ, "INTERLOCK_VENV": str(venv), "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    example = root / "examples/repo-health.md"
    assert said.stdout.splitlines() == [f"{root}/dev run", "--project", str(repository), "run", str(example)]
