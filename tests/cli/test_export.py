"""`interlock export` and `--from`: a run in one file, shown elsewhere as it was shown at home."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import interlock as api
from interlock.errors import UsageError

Call = Callable[..., subprocess.CompletedProcess[str]]
SAMPLE = Path(api.__file__).parent / "testing" / "sample"
READING = (("status",), ("units",), ("units", "--all"), ("events",), ("logs",))


@pytest.fixture
def ran(tmp_path: Path, interlock: Call) -> Path:
    """A project with one run of every shape of a workflow."""
    project = tmp_path / "project"
    shutil.copytree(SAMPLE, project, ignore=shutil.ignore_patterns("__pycache__"))
    (project / "interlock.toml").touch()
    for command in (["init", "--quiet"], ["add", "-A"], ["commit", "--quiet", "-m", "the sample"]):
        subprocess.run(["git", *command], cwd=project, check=True, timeout=60)
    done = interlock("run", "sample.md", cwd=project)
    assert done.returncode == 6, done.stdout + done.stderr
    return project


def test_every_reading_command_says_of_the_export_what_it_says_of_the_run(ran: Path, interlock: Call) -> None:
    away = ran.parent / "away"
    away.mkdir()
    made = interlock("export", "last", "-o", str(away / "run.gz"), cwd=ran)
    assert (made.returncode, made.stderr) == (0, "")
    before = {command: interlock(*command, "last", "--json", cwd=ran).stdout for command in READING}
    before |= {("logs", "fan"): interlock("logs", "last", "fan", "--json", cwd=ran).stdout}
    before |= {("status", "--artifact"): interlock("status", "last", "--artifact", "fan", cwd=ran).stdout}
    before |= {("list",): interlock("list", "--json", cwd=ran).stdout}
    before |= {("plan",): interlock("plan", "last", "--json", cwd=ran).stdout}
    shutil.rmtree(ran)

    def there(*arguments: str) -> str:
        done = interlock(*arguments, "--from", "run.gz", cwd=away)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    after = {command: there(*command, "last", "--json") for command in READING}
    after |= {("logs", "fan"): there("logs", "last", "fan", "--json")}
    after |= {("status", "--artifact"): there("status", "last", "--artifact", "fan")}
    after |= {("list",): there("list", "--json"), ("plan",): there("plan", "last", "--json")}
    assert after == before
    assert [entry.name for entry in away.iterdir()] == ["run.gz"], "something was written"


def test_a_person_reads_an_export_without_being_told_to_do_anything_about_it(ran: Path, interlock: Call) -> None:
    interlock("export", "last", "-o", "run.gz", cwd=ran)
    told = interlock("status", "--from", "run.gz", cwd=ran).stdout
    assert "degraded" in told
    assert "interlock " not in told
    assert "interlock " in interlock("status", cwd=ran).stdout


def test_an_export_is_verified_and_damage_is_told_with_exit_1(ran: Path, interlock: Call) -> None:
    made = json.loads(interlock("export", "last", "-o", "run.gz", "--json", cwd=ran).stdout)
    whole = interlock("export", "--verify", "run.gz", cwd=ran)
    assert whole.returncode == 0
    assert whole.stdout.startswith(f"run.gz is whole: run {made['run']}, made by interlock ")
    assert whole.stdout.endswith(f"{made['lines']} lines, {made['hash']}\n")
    found = json.loads(interlock("export", "--verify", "run.gz", "--json", cwd=ran).stdout)
    assert (found["hash"], found["lines"], found["runs"]) == (made["hash"], made["lines"], made["runs"])
    content = (ran / "run.gz").read_bytes()
    assert len(content) == made["bytes"]
    (ran / "run.gz").write_bytes(content[:-100])
    for command in (("export", "--verify", "run.gz"), ("status", "--from", "run.gz")):
        damaged = interlock(*command, cwd=ran)
        assert (damaged.returncode, damaged.stdout) == (1, "")
        assert "error: run.gz is damaged after line" in damaged.stderr
        assert "hint: take another copy of the file" in damaged.stderr


def test_the_same_run_gives_the_same_bytes_on_standard_output_too(ran: Path, interlock: Call) -> None:
    interlock("export", "last", "-o", "run.gz", cwd=ran)
    (ran / "main.py").write_text("from interlock.cli.entry import main; main()", encoding="utf-8")
    piped = interlock("export", "last", "-o", "again.gz", cwd=ran)
    assert piped.returncode == 0
    import sys  # noqa: PLC0415 - the interpreter of this test

    with (ran / "stdout.gz").open("wb") as out:
        program = [sys.executable, "main.py", "export", "last", "-o", "-"]
        done = subprocess.run(program, cwd=ran, stdout=out, stderr=subprocess.PIPE, timeout=60, text=True, check=True)
    assert done.stderr.startswith("exported run ")
    assert (ran / "stdout.gz").read_bytes() == (ran / "run.gz").read_bytes() == (ran / "again.gz").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("export",), 2, "name a RUN to export, or a file to --verify"),
        (("export", "last", "--verify", "x"), 2, "--verify takes a file and nothing else"),
        (("export", "nobody"), 2, "no run 'nobody' in"),
        (("export", "last", "-o", "."), 2, ". is a folder"),
        (("export", "last", "-o", "no/such/folder"), 1, "can't write no/such/folder: no such file or directory"),
        (("export", "--verify", "sample.md"), 2, "sample.md is not an export of interlock"),
        (("status", "--from", "sample.md"), 2, "sample.md is not an export of interlock"),
        (("status", "--from", "none"), 2, "can't read none: no such file or directory"),
        (("units", "other", "--from", "run.gz"), 2, "no run 'other' in run.gz"),
        (("plan", "sample.md", "--from", "run.gz"), 2, "no run 'sample.md' in run.gz"),
        (("logs", "last", "--follow", "--from", "run.gz"), 2, "run.gz is an export; it never grows"),
        (("events", "last", "--follow", "--from", "run.gz"), 2, "run.gz is an export; it never grows"),
        (("resume", "last", "--from", "run.gz"), 2, "No such option"),
        (("run", "last", "--from", "run.gz"), 2, "No such option"),
        (("approve", "last", "--from", "run.gz"), 2, "No such option"),
        (("export", "last", "-o", "run.gz"), 2, "run.gz is there already"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    journal: object, interlock: Call, arguments: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    del journal
    (tmp_path / "sample.md").write_text("# none\n", encoding="utf-8")
    assert interlock("export", "last", "-o", "run.gz", cwd=tmp_path).returncode == 0
    done = interlock(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(entry.name for entry in tmp_path.glob("*")) == [".interlock", "run.gz", "sample.md"]


def test_from_python_an_export_is_read_and_nothing_else(ran: Path, interlock: Call) -> None:
    interlock("export", "last", "-o", "run.gz", cwd=ran)
    with api.open_export(ran / "run.gz") as app:
        folder = app.project.root
        run_id = app.find("last")
        assert app.header.run == run_id
        assert app.store.run(run_id).outcome == "degraded"
        assert not app.driven(run_id)
        changing = (
            lambda: app.run_file(ran / "sample.md"),
            lambda: app.run_id(run_id),
            lambda: app.abandon(run_id),
            lambda: app.resolve(run_id, "pay:solo", done=True),
            lambda: app.approve(run_id),
            lambda: app.gc(older_than_ms=0),
        )
        for change in changing:
            with pytest.raises(UsageError):
                change()
    app.close()
    assert not folder.exists()


def test_nothing_is_left_in_the_folder_for_temporary_files(ran: Path, interlock: Call, tmp_path: Path) -> None:
    interlock("export", "last", "-o", "run.gz", cwd=ran)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert tempfile.gettempdir() != str(scratch)
    (ran / "bad.gz").write_bytes((ran / "run.gz").read_bytes()[:-1])
    for file, code in (("run.gz", 0), ("bad.gz", 1)):
        assert interlock("units", "last", "--from", file, cwd=ran, TMPDIR=str(scratch)).returncode == code
        assert list(scratch.iterdir()) == []


def test_a_file_whose_name_is_no_text_is_written_and_verified_with_json(ran: Path, interlock: Call) -> None:
    name = b"\xff.gz"
    done = interlock("export", "last", "-o", os.fsdecode(name), "--json", cwd=ran)
    assert (done.returncode, json.loads(done.stdout)["file"]) == (0, "\ufffd.gz")
    assert (ran / os.fsdecode(name)).exists()
    done = interlock("export", "--verify", os.fsdecode(name), "--json", cwd=ran)
    assert json.loads(done.stdout)["file"] == "\ufffd.gz"
