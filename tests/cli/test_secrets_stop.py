"""A secret's command that gives no answer holds nobody up who stops the run, and outlives no driver."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.waiting import is_gone, until

Cli = Callable[..., subprocess.CompletedProcess[str]]
CONFIG = '[env.vault]\nsecrets = { TOKEN = { command = ["sh", "-c", "echo $$ > pid; cat gate; exec cat secret"] } }\n'
TARGETS = {"command": "run: 'echo ${TOKEN}'", "function": "uses: python:work:noop"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "interlock.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "secret").write_text("a-secret-value\n", encoding="utf-8")
    (tmp_path / "work.py").write_text("def noop(context):\n    return None\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def waits(begin: Callable[..., subprocess.Popen[Any]], project: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Starts interlock, and returns when a secret's command waits to be let go."""
    (project / "gate").unlink(missing_ok=True)

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        (project / "pid").unlink(missing_ok=True)
        subprocess.run(["mkfifo", "gate"], cwd=project, check=True)
        process = begin(
            *arguments, cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        until(lambda: pid_in(project) > 0)
        return process

    return start


def pid_in(project: Path) -> int:
    try:
        return int((project / "pid").read_text(encoding="utf-8") or 0)
    except FileNotFoundError:
        return 0


def let_go(project: Path) -> None:
    (project / "gate").unlink()
    (project / "gate").touch()


def flow(project: Path, target: str) -> None:
    step = f"  - {{ id: a, env: [vault], {target} }}\n"
    (project / "flow.md").write_text(f"---\nsteps:\n{step}---\n", encoding="utf-8")


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_who_stops_the_run_does_not_wait_for_a_secret_and_the_unit_is_not_failed(
    waits: Callable[..., subprocess.Popen[bytes]], interlock: Cli, project: Path, target: str
) -> None:
    flow(project, target)
    process = waits("run", "flow.md")
    pid = pid_in(project)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    assert is_gone(pid)
    (unit,) = json.loads(interlock("units", "last", "--json", cwd=project).stdout)
    assert (unit["state"], unit["reason"]) == ("pending", "aborted")
    let_go(project)
    assert interlock("run", "last", cwd=project).returncode == 0


def test_a_time_limit_of_the_run_ends_a_secret_s_command(
    waits: Callable[..., subprocess.Popen[bytes]], project: Path
) -> None:
    flow(project, TARGETS["command"])
    process = waits("run", "flow.md", "--timeout", "2s")
    assert process.wait(15) == 130
    assert is_gone(pid_in(project))


def test_a_killed_driver_leaves_no_secret_s_command(
    waits: Callable[..., subprocess.Popen[bytes]], project: Path
) -> None:
    flow(project, TARGETS["command"])
    process = waits("run", "flow.md")
    pid = pid_in(project)
    assert not is_gone(pid)
    process.kill()
    process.wait()
    until(lambda: is_gone(pid))


def test_what_a_resume_has_made_known_again_can_be_stopped_too(
    waits: Callable[..., subprocess.Popen[bytes]], interlock: Cli, project: Path
) -> None:
    steps = "  - { id: a, env: [vault], run: 'echo ${TOKEN}' }\n  - { id: b, run: test -e mended }\n"
    (project / "flow.md").write_text(f"---\nsteps:\n{steps}---\n", encoding="utf-8")
    (project / "gate").touch()
    assert interlock("run", "flow.md", cwd=project).returncode == 1
    (project / "gate").unlink()
    process = waits("resume", "last")
    pid = pid_in(project)
    process.send_signal(signal.SIGTERM)
    # all that is had again may take ten seconds
    assert process.wait(8) == 130
    assert is_gone(pid)
    (project / "mended").touch()
    let_go(project)
    assert interlock("run", "last", cwd=project).returncode == 0
