"""What is passed on as it was written: a command's arguments, and options that can be given once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.cli import program

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]


def test_an_empty_argument_reaches_the_command_and_the_check(interlock: Interlock, tmp_path: Path) -> None:
    (tmp_path / "flow.md").write_text(
        "---\nsteps:\n  - id: a\n    run: [printf, '%s|', a, '', b]\n    gate: { check: [test, '', '=', ''] }\n---\n",
        encoding="utf-8",
    )
    done = interlock("run", "flow.md", "--json", cwd=tmp_path)
    (step,) = json.loads(done.stdout.splitlines()[-1])["steps"]
    assert (done.returncode, step["artifact"]) == (0, "a||b|")


@pytest.mark.parametrize(
    ("arguments", "option", "command"),
    [
        (["run", "flow.md", "--params-file", "a", "--params-file", "b"], "--params-file", "interlock run"),
        (["run", "flow.md", "--key=a", "--key", "b"], "--key", "interlock run"),
        (["reject", "last", "-m", "one", "--note", "two"], "--note", "interlock reject"),
        (["--project", "/", "--project", ".", "list"], "--project", "interlock"),
        (["units", "last", "--state", "failed", "--state", "running"], "--state", "interlock units"),
    ],
)
def test_a_second_value_is_refused_rather_than_dropped(
    capfd: pytest.CaptureFixture[str], arguments: list[str], option: str, command: str
) -> None:
    assert program.run(arguments) == 2
    assert capfd.readouterr().err == (
        f"error: {option} is given twice, and takes one value; give it once\nhint: see `{command} --help`\n"
    )


def test_options_that_may_be_repeated_and_flags_may(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert program.run(["--project", str(tmp_path), "list", "--json", "--json"]) == 0
    assert capfd.readouterr().out == "[]\n"
    assert program.run(["--project", str(tmp_path), "run", "no.md", "-p", "a=1", "-p", "b=2"]) == 2
    assert "twice" not in capfd.readouterr().err


@pytest.mark.parametrize("key", ["", " "])
def test_a_blank_key_is_refused_before_anything_starts(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, key: str
) -> None:
    (tmp_path / "flow.md").write_text("---\nsteps: [{ id: a, run: 'true' }]\n---\n", encoding="utf-8")
    assert program.run(["--project", str(tmp_path), "run", str(tmp_path / "flow.md"), "--key", key]) == 2
    assert capfd.readouterr().err == (
        "error: --key is blank\nhint: give the key that says which run is meant, or leave it out\n"
    )
    assert not (tmp_path / ".interlock").exists()
