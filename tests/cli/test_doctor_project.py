"""What `doctor` says of the project: the interpreter of its functions, and whether there is room for its state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.driver.doctor.project import check_interpreter, check_state
from interlock.driver.project import project_at

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]


def test_the_interpreter_that_is_configured_has_to_be_there_and_a_python(tmp_path: Path) -> None:
    paths = project_at(tmp_path)
    gone = check_interpreter(paths, ("/nonexist/python",))
    assert (gone.ok, gone.hint) == (False, "mend 'python' below [run]")
    assert gone.detail == "the interpreter of Python functions '/nonexist/python' was not found"
    assert check_interpreter(paths, ("false",)).detail.endswith("/false is no Python")
    (tmp_path / "broken").write_text("#!/nonexist/python\n", encoding="utf-8")
    (tmp_path / "broken").chmod(0o755)
    broken = check_interpreter(paths, ("./broken",))
    assert broken.detail == f"{tmp_path}/broken can't be started: No such file or directory"
    good = check_interpreter(paths, (sys.executable, "-E"))
    version = ".".join(map(str, sys.version_info[:3]))
    assert (good.ok, good.detail) == (True, f"Python {version} at {sys.executable} -E")


def test_an_environment_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to("/nonexist/python")
    found = check_interpreter(project_at(tmp_path), ())
    assert (found.ok, found.hint) == (False, "make the environment anew, or set 'python' below [run]")


@pytest.mark.parametrize("name", ["", "logs", "artifacts", "spool", "worktrees"])
def test_a_file_where_a_folder_should_be_is_in_the_way(tmp_path: Path, name: str) -> None:
    paths = project_at(tmp_path)
    assert check_state(paths) is None
    place = paths.state_dir / name if name else paths.state_dir
    place.parent.mkdir(exist_ok=True)
    place.write_text("x", encoding="utf-8")
    found = check_state(paths)
    assert found is not None
    assert (found.ok, found.detail, found.hint) == (
        False,
        f"{place} is in the way: it is not a folder",
        "move it away",
    )


def test_an_id_that_is_empty_and_a_folder_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    paths = project_at(tmp_path)
    paths.state_dir.mkdir()
    (paths.state_dir / "id").touch()
    found = check_state(paths)
    assert found is not None
    assert found.detail == f"{paths.state_dir}/id can't be read or is empty"
    (paths.state_dir / "logs").mkdir(mode=0o500)
    found = check_state(paths)
    if os.geteuid():
        assert found is not None
        assert found.detail == f"{paths.state_dir}/logs: Permission denied"


def test_doctor_says_what_run_would_refuse(tmp_path: Path, interlock: Interlock) -> None:
    (tmp_path / "interlock.toml").write_text('[run]\npython = "/nonexist/python"\n', encoding="utf-8")
    (tmp_path / ".interlock").touch()
    done = interlock("doctor", "--json", cwd=tmp_path)
    found = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert done.returncode == 1
    assert (found["functions"]["ok"], found["journal place"]["ok"]) == (False, False)
    assert found["journal place"]["detail"] == f"{tmp_path}/.interlock is in the way: it is not a folder"


FAULTY = """[run]
python = 3
[limits]
max_items = 0
[engines.mine]
kind = "agent"
agent = "command"
command = ["/bin/cat"]
[engines.other]
kind = "agnt"
[env.good]
vars = ["HOME"]
[env.bad]
vars = 3
"""
HOST = {
    "python",
    "sqlite",
    "git",
    "shell",
    "journal place",
    "filesystem",
    "disk space",
    "/proc",
    "pidfd",
}


@pytest.mark.parametrize(
    ("text", "faults", "also"),
    [
        (FAULTY, 4, {"engine mine", "env good"}),
        ("[run\n", 1, set()),
        ("[limits]\nmax_items = 0\n", 1, {"functions"}),
    ],
)
def test_doctor_checks_under_a_faulty_configuration_what_does_not_depend_on_it(
    tmp_path: Path, interlock: Interlock, text: str, faults: int, also: set[str]
) -> None:
    (tmp_path / "interlock.toml").write_text(text, encoding="utf-8")
    done = interlock("doctor", "--json", cwd=tmp_path)
    found = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert done.returncode == 78
    assert set(found) == {*HOST, "journal", "configuration", *also}
    told = f"{faults} error{'s' if faults > 1 else ''} in {tmp_path}/interlock.toml"
    assert (found["configuration"]["ok"], found["configuration"]["detail"]) == (False, told)
    assert found["configuration"]["hint"] == "mend what is told of it; what depends on it was not checked"
    assert done.stderr.count("interlock.toml:") == faults
