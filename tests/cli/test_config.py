"""`interlock config`: what holds, where it was written, and by which name a file may say it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]


def test_the_configuration_in_force_is_shown_with_its_origin(interlock: Interlock, tmp_path: Path) -> None:
    (tmp_path / "interlock.toml").write_text("[run]\nmax_concurrency = 3\n", encoding="utf-8")
    shown = json.loads(interlock("config", "run.max_concurrency", "--json", cwd=tmp_path).stdout)
    assert shown == [{"key": "run.max_concurrency", "value": 3, "file": str(tmp_path / "interlock.toml"), "line": 2}]
    assert "interlock.toml:2" in interlock("config", "run", cwd=tmp_path).stdout


def test_the_default_interpreter_is_that_of_the_project_else_interlock_s_own(
    interlock: Interlock, tmp_path: Path
) -> None:
    shown = json.loads(interlock("config", "run.python", "--json", cwd=tmp_path).stdout)
    assert shown == [{"key": "run.python", "value": [sys.executable], "file": None, "line": None}]
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (shown,) = json.loads(interlock("config", "run.python", "--json", cwd=tmp_path).stdout)
    assert shown["value"] == [str(tmp_path / ".venv" / "bin" / "python")]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("run.timeuot", "did you mean 'run.timeout'?"),
        ("run.timeout_ms", "did you mean 'run.timeout'?"),
        ("nope", "see them all: interlock config"),
    ],
)
def test_a_setting_that_there_is_not_is_no_empty_answer(
    name: str, hint: str, interlock: Interlock, tmp_path: Path
) -> None:
    told = interlock("config", name, cwd=tmp_path)
    expected = f"error: there is no setting or table '{name}'\nhint: {hint}\n"
    assert (told.returncode, told.stdout, told.stderr) == (2, "", expected)
    assert interlock("config", "run.engine", cwd=tmp_path).returncode == 0
