"""Calls that are typed by mistake or made by scripts gone wrong: told in words, and nothing is done that was not meant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
PROGRAM = [sys.executable, "-c", "from interlock.cli.entry import main; main()"]
GATED = "---\nsteps:\n  - { id: a, run: echo x, gate: { approval: true } }\n---\n"


def into_a_full_device(*arguments: str, cwd: Path) -> tuple[int, str]:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*PROGRAM, *arguments], cwd=cwd, stdout=full, stderr=subprocess.PIPE, check=False)
    return done.returncode, done.stderr.decode()


def test_a_version_that_cannot_be_shown_is_told_in_words(tmp_path: Path) -> None:
    for option in ("--version", "-V"):
        code, said = into_a_full_device(option, cwd=tmp_path)
        assert (code, said.splitlines()[0]) == (1, "error: No space left on device")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*PROGRAM, "-V"], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_was_done_is_done_though_it_cannot_be_shown(tmp_path: Path, interlock: Interlock) -> None:
    (tmp_path / "flow.md").write_text(GATED, encoding="utf-8")
    assert interlock("run", "flow.md", cwd=tmp_path).returncode == 4
    assert into_a_full_device("approve", "last", "a", cwd=tmp_path) == (
        0,
        "note: it is done, but what was to be said of it could not be written: No space left on device\n",
    )
    assert interlock("run", "last", cwd=tmp_path).returncode == 0
    assert into_a_full_device("status", cwd=tmp_path)[0] == 1


@pytest.mark.parametrize("name", ["", ".", "/", ".."])
def test_a_starter_workflow_needs_a_name(tmp_path: Path, interlock: Interlock, name: str) -> None:
    done = interlock("new", name, cwd=tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert done.stderr.endswith("hint: give the workflow a name: interlock new FILE\n")


def test_a_blank_path_is_not_the_current_folder(tmp_path: Path, interlock: Interlock) -> None:
    done = interlock("lint", "", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "error: a path is blank\nhint: name files or folders\n")


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path, interlock: Interlock) -> None:
    os.mkfifo(tmp_path / "flow.md")
    assert interlock("lint", ".", cwd=tmp_path).stderr.endswith("no faults found\n")
    os.mkfifo(tmp_path / "interlock.toml")
    done = interlock("config", cwd=tmp_path)
    assert (done.returncode, "can't read the configuration: a pipe or device" in done.stderr) == (78, True)


def test_a_ceiling_is_raised_once(tmp_path: Path, interlock: Interlock) -> None:
    (tmp_path / "flow.md").write_text("---\nsteps:\n  - { id: a, run: exit 1 }\n---\n", encoding="utf-8")
    interlock("run", "flow.md", cwd=tmp_path)
    done = interlock("resume", "last", "--raise", "max_units=5", "--raise", "max_units=9", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "error: --raise max_units is given twice\nhint: give it once\n")


def test_a_run_of_the_same_key_that_is_under_way_is_to_be_watched(tmp_path: Path, interlock: Interlock) -> None:
    flow = "---\nparams: { k: { default: a } }\nsteps:\n  - { id: a, run: 'until test -e open; do sleep 0.05; done' }\n---\n"
    (tmp_path / "flow.md").write_text(flow, encoding="utf-8")
    first = subprocess.Popen([*PROGRAM, "run", "flow.md", "--key", "k"], cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        assert first.stdout is not None
        run_id = first.stdout.readline().split()[1].decode()
        (tmp_path / "flow.md").write_text(flow.replace("until test -e open", "while false"), encoding="utf-8")
        told = interlock("run", "flow.md", "--key", "k", cwd=tmp_path).stdout
    finally:
        (tmp_path / "open").touch()
        first.communicate()
    assert f"it is active and under way; watch it with `interlock events {run_id} --follow`" in told


def test_a_faulty_engine_is_blamed_once(tmp_path: Path, interlock: Interlock) -> None:
    (tmp_path / "interlock.toml").write_text(
        '[engines.zz]\nkind = "agent"\nmodel = "m"\n[models.m]\nx = "y"\n', encoding="utf-8"
    )
    (tmp_path / "flow.md").write_text("---\nsteps:\n  - { id: a, run: echo }\n---\n", encoding="utf-8")
    done = interlock("lint", "flow.md", cwd=tmp_path)
    assert done.returncode == 78
    assert done.stderr.endswith("1 error, 1 warning\n"), done.stdout


@pytest.mark.parametrize("arguments", [("run", "./loop.md"), ("lint", "./loop.md"), ("plan", "./loop.md")])
def test_links_that_lead_in_a_circle_are_told_in_words(
    tmp_path: Path, interlock: Interlock, flow: Callable[..., Path], arguments: tuple[str, str]
) -> None:
    flow()
    assert interlock("run", "flow.md", cwd=tmp_path).returncode == 0
    (tmp_path / "loop.md").symlink_to("loop.md")
    told = interlock(*arguments, cwd=tmp_path)
    said = told.stdout if arguments[0] == "lint" else told.stderr
    assert told.returncode == 2
    assert said.startswith(
        "loop.md:1:1: error: can't read the workflow: too many levels of symbolic links\n"
        "hint: its links lead in a circle: point one of them at the file\n"
    )


def test_json_names_a_file_whatever_bytes_its_name_is_made_of(tmp_path: Path, interlock: Interlock) -> None:
    folder, shown = tmp_path / os.fsdecode(b"odd\xff"), f"{tmp_path}/odd\N{REPLACEMENT CHARACTER}"
    folder.mkdir()

    def told(*arguments: str) -> str:
        done = interlock("--project", str(folder), *arguments, "--json", cwd=tmp_path)
        assert "internal error" not in done.stderr
        return str(json.loads(done.stdout))

    # the file, and the command that runs it
    assert told("new", str(folder / "flow.md")).count(f"{shown}/flow.md") == 2
    assert shown in told("schema", "--out", str(folder / "schema.json"))
    (folder / "interlock.toml").write_text("[env.e]\ndotenv = ['none']\n", encoding="utf-8")
    assert f"{shown}/interlock.toml" in told("config", "env")
    assert shown in told("doctor")
    (folder / "interlock.toml").write_text("[rum]\n", encoding="utf-8")
    assert f"{shown}/interlock.toml" in told("lint", str(folder / "flow.md"))
