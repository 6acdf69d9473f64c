"""What a run makes of its surroundings: folders above, a limit of open files, modules that change."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
PROGRAM = [sys.executable, "-c", "from interlock.cli.entry import main; main()"]


def test_a_project_that_was_passed_over_is_told(interlock: Interlock, tmp_path: Path) -> None:
    (tmp_path / "interlock.toml").touch()
    (tmp_path / "work").mkdir()
    told = interlock("list", cwd=tmp_path / "work", HOME=str(tmp_path)).stderr
    assert told.startswith(f"note: {tmp_path}/interlock.toml was passed over: your home folder is never a project")


@pytest.mark.parametrize("kind", ["-n", "-Sn"])
def test_a_map_wider_than_files_may_be_open_waits_and_its_children_get_the_users_limit(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "wide.md").write_text(
        "---\nparams: { n: { type: array } }\nsteps:\n"
        "  - { id: wide, map: { over: params.n, concurrency: 60 }, run: sleep 0.2; ulimit -n }\n---\n",
        encoding="utf-8",
    )
    given = ["wide.md", "-p", f"n={list(range(60))}", "--json"]
    limited = ["sh", "-c", f'ulimit {kind} 150 && exec "$@"', "sh", *PROGRAM, "run", *given]
    done = subprocess.run(limited, cwd=tmp_path, check=False, capture_output=True)
    last = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, last["steps"][0]["artifact"]) == (0, ["150"] * 60)


def test_a_changed_module_blocks_wherever_the_command_is_typed_until_the_change_is_accepted(
    interlock: Interlock, tmp_path: Path
) -> None:
    (tmp_path / ".interlock").mkdir(mode=0o700)
    (tmp_path / "below").mkdir()
    module = tmp_path / "work.py"
    module.write_text("def one(context):\n    return 1\n", encoding="utf-8")
    (tmp_path / "flow.md").write_text(
        "---\nsteps:\n  - { id: wait, run: test -e open }\n  - { id: one, uses: 'python:work:one' }\n---\n",
        encoding="utf-8",
    )
    assert interlock("run", "../flow.md", cwd=tmp_path / "below").returncode == 1
    (tmp_path / "open").touch()
    module.write_text("def one(context):\n    return 2\n", encoding="utf-8")
    for _ in range(2):
        told = interlock("resume", "last", cwd=tmp_path / "below")
        assert told.returncode == 4
        assert "module work (work.py) changed since the run began" in told.stdout
    accepted = interlock("resume", "last", "--accept-changes", "--json", cwd=tmp_path / "below")
    last = json.loads(accepted.stdout.splitlines()[-1])
    assert (accepted.returncode, last["steps"][1]["artifact"]) == (0, 2)


def test_later_edits_change_nothing_in_a_run_under_way(interlock: Interlock, tmp_path: Path) -> None:
    steps = "{ id: wait, run: test -e open }", "{ id: one, uses: ./say.sh }", "{ id: two, run: echo old text }"
    flow, script = tmp_path / "flow.md", tmp_path / "say.sh"
    flow.write_text("---\nsteps:\n  - " + "\n  - ".join(steps) + "\n---\n", encoding="utf-8")
    script.write_text("echo old script\n", encoding="utf-8")
    assert interlock("run", "flow.md", cwd=tmp_path).returncode == 1
    (tmp_path / "open").touch()
    flow.write_text("---\nsteps: []\n", encoding="utf-8")
    script.unlink()
    (tmp_path / "interlock.toml").write_text('[run]\nmax_concurrency = 1\npython = "gone"\n', encoding="utf-8")
    done = interlock("resume", "last", "--json", cwd=tmp_path)
    last = json.loads(done.stdout.splitlines()[-1])
    assert [step["artifact"] for step in last["steps"]] == [None, "old script", "old text"]


def test_a_plan_that_was_tampered_with_stops_with_an_error_that_names_the_run(
    interlock: Interlock, tmp_path: Path
) -> None:
    (tmp_path / "flow.md").write_text("---\nsteps:\n  - { id: a, run: echo safe; exit 1 }\n---\n", encoding="utf-8")
    interlock("run", "flow.md", cwd=tmp_path)
    (run,) = json.loads(interlock("list", "--json", cwd=tmp_path).stdout)
    with closing(sqlite3.connect(tmp_path / ".interlock" / "journal.db")) as raw, raw:
        raw.execute("UPDATE run_plan SET json = CAST(replace(CAST(json AS TEXT), 'safe', 'evil') AS BLOB)")
    done = interlock("resume", "last", cwd=tmp_path)
    assert done.returncode == 1
    assert run["id"] in done.stderr
    assert "hint: " in done.stderr
    (again,) = json.loads(interlock("list", "--json", cwd=tmp_path).stdout)
    assert again["state"] == "failed"
    assert len(json.loads(interlock("units", "last", "--json", cwd=tmp_path).stdout)) == 1
