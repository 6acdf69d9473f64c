"""The examples lint and run as they stand; the repository health report holds on repositories that are odd."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import ROOT, Shell

from interlock.driver.compiling import workflow_files

EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.md"))
HEALTH = ROOT / "examples" / "repo-health.md"
# put together here, so that this file holds no such text itself
KEY = "AKIA" + "IOSFODNN7EXAMPLE"


def git(shell: Shell, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=shell.folder, env=shell.env, check=True, capture_output=True)


def commit(shell: Shell, *, allow_empty: bool = False) -> None:
    git(shell, "add", "--all")
    git(shell, "commit", "--quiet", "--message", "A change", *(["--allow-empty"] if allow_empty else []))


@pytest.fixture
def repository(shell: Shell) -> Shell:
    git(shell, "init", "--quiet")
    return shell


def odd(folder: Path) -> None:
    """Fill a folder with what makes naive scripts fail."""
    (folder / "a b").mkdir()
    (folder / "a b" / "new\nline.txt").write_text("x\n")
    (folder / "-rf").write_text("x\n")
    (folder / '"quoted" $(touch pwned)').write_text("x\n")
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9")).write_text("latin\n")
    (folder / "broken").symlink_to("nowhere")
    (folder / "up").symlink_to("..")
    (folder / "key.py").write_text(f"\nKEY = '{KEY}'\n")
    (folder / "conflict").write_text("\n<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n")
    (folder / "big.bin").write_bytes(bytes(2_000_000))


def status(shell: Shell) -> dict[str, Any]:
    done = shell.run("interlock status last --json")
    assert done.returncode == 0, done.stdout
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def artifact(shell: Shell, step: str) -> Any:
    return next(entry["artifact"] for entry in status(shell)["steps"] if entry["id"] == step)


def test_examples_with_agents_have_no_faults_and_no_warnings_where_their_engines_are_configured(shell: Shell) -> None:
    shell.folder = ROOT / "examples" / "agents"
    done = shell.run("interlock lint . --json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


def test_the_other_examples_have_none_without_any_configuration(shell: Shell) -> None:
    files = " ".join(f"'{ROOT}/examples/{example}'" for example in EXAMPLES)
    done = shell.run(f"interlock lint {files} --json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


def test_every_example_is_linted_as_a_workflow() -> None:
    found = workflow_files([ROOT / "examples"])
    assert sorted(found) == sorted((ROOT / "examples").rglob("*.md"))


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs_as_it_stands(example: str, repository: Shell) -> None:
    (repository.folder / "README.md").write_text("# Here\n")
    commit(repository)
    params = ROOT / "examples" / example.replace(".md", ".params.yaml")
    file = f" --params-file '{params}'" if params.exists() else ""
    done = repository.run(f"interlock run '{ROOT}/examples/{example}'{file}")
    assert done.returncode == 0, done.stdout


def test_health_of_an_odd_repository_is_told_and_nothing_in_it_is_run(repository: Shell) -> None:
    odd(repository.folder)
    commit(repository)
    for path in repository.folder.rglob("*"):
        if path.is_file() and path.stat().st_size < 10:
            path.write_text("changed\n")
    commit(repository)
    done = repository.run(f"interlock run '{HEALTH}'")
    assert done.returncode == 0, done.stdout
    report = (repository.folder / artifact(repository, "report")).read_text(encoding="utf-8")
    assert report.startswith("# Repository health: 0 of 100, needs attention\n")
    assert "- `key.py:2 (AWS access key)`" in report
    assert "- `conflict:2`" in report
    assert "- `broken`" in report
    assert "- `big.bin (1953 KiB)`" in report
    assert "`a b/new\\x0aline.txt`" in report
    assert "`caf\\xe9`" in report
    assert "`up`" not in report.partition("## Changes most often")[0]
    assert KEY not in report + done.stdout
    assert not (repository.folder / "pwned").exists()


def test_every_tracked_file_is_scanned_whatever_the_groups(repository: Shell) -> None:
    for folder in ("", "src/one/", "src/two/", "src/two/deep/", "docs/"):
        (repository.folder / folder).mkdir(parents=True, exist_ok=True)
        for n in range(17):
            (repository.folder / f"{folder}{n}.txt").write_text(f"{folder}{n}\n")
    commit(repository)
    done = repository.run(f"interlock run '{HEALTH}'")
    assert done.returncode == 0, done.stdout
    summary = artifact(repository, "summary")
    assert (summary["files_listed"], summary["files_scanned"], summary["totals"]["lines"]) == (85, 85, 85)
    groups = artifact(repository, "files")["groups"]
    assert len(groups) > 1
    assert sum(group["files"] for group in groups) == 85


def test_health_of_a_commit_without_files_is_told(repository: Shell) -> None:
    commit(repository, allow_empty=True)
    done = repository.run(f"interlock run '{HEALTH}'")
    assert done.returncode == 0, done.stdout
    assert artifact(repository, "summary")["files_listed"] == 0


def test_health_of_a_shallow_clone_says_that_it_is_one(repository: Shell, tmp_path: Path) -> None:
    for n in range(3):
        (repository.folder / "file").write_text(f"{n}\n")
        commit(repository)
    clone = tmp_path / "clone"
    git(repository, "clone", "--quiet", "--depth", "1", f"file://{repository.folder}", str(clone))
    repository.folder = clone
    done = repository.run(f"interlock run '{HEALTH}'")
    assert done.returncode == 0, done.stdout
    assert "This is a shallow clone" in (clone / artifact(repository, "report")).read_text(encoding="utf-8")


def test_a_repository_without_a_commit_is_a_clear_failure(repository: Shell) -> None:
    done = repository.run(f"interlock run '{HEALTH}'")
    assert done.returncode == 1
    assert f"{repository.folder} is no git repository, or nothing was committed there yet" in done.stdout


def test_a_folder_without_git_is_a_clear_failure(shell: Shell) -> None:
    done = shell.run(f"interlock run '{HEALTH}'")
    assert done.returncode == 1
    assert f"{shell.folder} is no git repository, or nothing was committed there yet" in done.stdout


def test_a_report_may_be_written_elsewhere_and_read_again(repository: Shell) -> None:
    (repository.folder / "LICENSE").write_text("Do what you like.\n")
    commit(repository)
    done = repository.run(f"interlock run '{HEALTH}' -p report=health.md -p pass_score=50")
    assert done.returncode == 0, done.stdout
    assert (repository.folder / "health.md").read_text(encoding="utf-8").startswith("# Repository health: ")
    assert artifact(repository, "verdict") is None or artifact(repository, "fix") is None
