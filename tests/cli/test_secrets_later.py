"""Values that a driver learns late, or that an earlier one learned, are redacted wherever they turn up."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., subprocess.CompletedProcess[str]]
TOKEN = "p&ss<word>" + "0aB1cD2eF3" * 8
USER = "robot-account-of-staging"
CONFIG = """[env.vault]
dotenv = [".env.vault"]
secrets = { TOKEN = { command = ["cat", "vault"] } }
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "interlock.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "vault").write_text(TOKEN + "\n", encoding="utf-8")
    (tmp_path / ".env.vault").write_text(f"VAULT_USER={USER}\n", encoding="utf-8")
    return tmp_path


def flow(project: Path, steps: str) -> None:
    (project / "flow.md").write_text(f"---\nsteps:\n{steps}---\n", encoding="utf-8")


def everything(interlock: Cli, project: Path, *said: subprocess.CompletedProcess[str]) -> str:
    """All that is shown of the last run, and all that is kept of it."""
    ways = [(command, "last", *how) for command in ("status", "units", "logs", "events") for how in ((), ("--json",))]
    shown = [one.stdout + one.stderr for one in (*said, *(interlock(*way, cwd=project) for way in ways))]
    kept = [path.read_bytes() for path in (project / ".interlock").rglob("*") if path.is_file()]
    return "".join(shown) + b"".join(kept).decode("utf-8", "replace")


def assert_hidden(text: str) -> None:
    assert "[redacted:TOKEN]" in text
    lines = base64.encodebytes(TOKEN.encode()).decode().splitlines()
    for spelled in (TOKEN, TOKEN[10:], *lines[:1], USER):
        assert spelled not in text


def test_json_that_spells_a_value_its_own_way_is_redacted_as_it_is_read(interlock: Cli, project: Path) -> None:
    flow(
        project,
        "  - id: go\n    env: [vault]\n    output: { type: object }\n"
        "    run: |\n"
        "      python3 -c \"import json, os; t = json.dumps({'t': os.environ['TOKEN'], os.environ['TOKEN']: 1}); "
        "print(t.replace('&', chr(92) + 'u0026').replace('<', chr(92) + 'u003C').replace('p', chr(92) + 'u0070'))\"\n"
        '  - id: wrapped\n    env: [vault]\n    run: printf %s "$TOKEN" | base64\n',
    )
    done = interlock("run", "flow.md", cwd=project)
    assert done.returncode == 0, done.stderr
    assert_hidden(everything(interlock, project, done))


def test_a_step_beside_the_one_that_has_a_secret_shows_none_of_it(interlock: Cli, project: Path) -> None:
    os.mkfifo(project / "there")
    flow(
        project,
        "  - { id: spy, needs: [], run: 'cat there; cat told' }\n"
        "  - { id: spies, needs: [], uses: 'python:spy:look' }\n"
        "  - id: own\n    needs: []\n    env: [vault]\n"
        '    run: echo "$TOKEN $VAULT_USER" > told; echo now > there; echo now > there2\n',
    )
    os.mkfifo(project / "there2")
    (project / "spy.py").write_text(
        "def look(context):\n    open('there2').read()\n    text = open('told').read()\n    print(text)\n    return text\n",
        encoding="utf-8",
    )
    done = interlock("run", "flow.md", cwd=project)
    assert done.returncode == 0, done.stderr
    assert_hidden(everything(interlock, project, done))


STEPS = (
    "  - id: own\n    env: [vault]\n"
    '    run: echo "$TOKEN $VAULT_USER" > told\n'
    "  - { id: later, run: 'test -e ready; cat told; cat told >&2' }\n"
)


def test_what_an_earlier_driver_gave_a_step_is_redacted_after_a_resume(interlock: Cli, project: Path) -> None:
    flow(project, STEPS)
    assert interlock("run", "flow.md", cwd=project).returncode == 1
    (project / "ready").touch()
    done = interlock("resume", "last", cwd=project)
    assert done.returncode == 0, done.stderr
    assert_hidden(everything(interlock, project, done))


def test_a_secret_that_cannot_be_had_again_is_told(interlock: Cli, project: Path) -> None:
    flow(project, STEPS)
    assert interlock("run", "flow.md", cwd=project).returncode == 1
    (project / "ready").touch()
    (project / "vault").unlink()
    done = interlock("resume", "last", cwd=project)
    assert done.returncode == 0, done.stderr
    told = (
        "env group vault: the command `cat` for TOKEN failed with exit code 1; until it resolves, "
        "what it gave earlier steps cannot be redacted"
    )
    assert told in interlock("events", "last", "--json", cwd=project).stdout
    assert told in done.stdout + done.stderr
    assert USER not in everything(interlock, project, done)


def test_nothing_is_asked_for_a_secret_when_nothing_is_dispatched(interlock: Cli, project: Path) -> None:
    flow(project, "  - { id: own, env: [vault], run: 'true' }\n")
    assert interlock("run", "flow.md", cwd=project).returncode == 0
    (project / "vault").unlink()
    again = interlock("run", "last", cwd=project)
    assert again.returncode == 0, again.stderr
    assert "cannot be redacted" not in again.stdout + again.stderr
