"""What somebody sees who catches nothing: the fault, its place and the next step stand in the traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from interlock.errors import UsageError, WorkflowError


def last_lines(script: str, folder: Path) -> str:
    """Return what the script's end wrote, from the error on."""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    return done.stderr[done.stderr.index("\ninterlock.errors.") + 1 :]


def test_a_traceback_names_every_fault_of_a_workflow_and_its_place(tmp_path: Path) -> None:
    (tmp_path / "slip.md").write_text("---\nsteps: [{ id: a, run: 'true', timeuot: 1s }]\n---\n", encoding="utf-8")
    assert last_lines("import interlock; interlock.run('slip.md')", tmp_path) == (
        "interlock.errors.WorkflowError: 1 error in slip.md\n"
        "slip.md:2:31: error: unknown key 'timeuot' in a step (did you mean 'timeout'?)\n"
    )


def test_a_traceback_names_the_next_step(tmp_path: Path) -> None:
    assert last_lines("import interlock; interlock.open('nowhere')", tmp_path) == (
        "interlock.errors.UsageError: nowhere is not a folder\nhint: name the folder that the project is in\n"
    )


def test_notes_that_others_add_stand_behind(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        interlock.open(tmp_path / "nowhere")
    caught.value.add_note("seen in the morning")
    caught.value.hint += ", or make it"
    assert caught.value.__notes__ == ["hint: name the folder that the project is in, or make it", "seen in the morning"]
    caught.value.__notes__ = ["other"]
    assert caught.value.__notes__[1:] == ["other"]
    assert WorkflowError(()).__notes__ == []
