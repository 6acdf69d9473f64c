"""The agents are pinned to the byte, and their lock files tie nobody to one registry."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from tests.e2e.agents import ALL, ROOT

LOCKS = sorted((ROOT / "tools" / "agents").glob("*/package-lock.json"))
SCRIPT = ROOT / "tools" / "setup_agents.sh"


def test_every_agent_has_a_lock() -> None:
    assert {path.parent.name for path in LOCKS} == {agent.program for agent in ALL.values()} | {"node"}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.parent.name)
def test_a_lock_pins_by_hash_and_names_no_registry(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert '"resolved"' not in text
    packages = {name: entry for name, entry in json.loads(text)["packages"].items() if name}
    assert packages
    assert [name for name, entry in packages.items() if not entry.get("integrity", "").startswith("sha512-")] == []
    wanted = json.loads((lock.parent / "package.json").read_text(encoding="utf-8"))["dependencies"]
    assert wanted == {name: packages[f"node_modules/{name}"]["version"] for name in wanted}


def test_without_npm_the_set_up_says_what_to_do(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("dirname", "mkdir", "uname", "sh"):
        path = next(Path(folder, name) for folder in ("/bin", "/usr/bin") if os.access(Path(folder, name), os.X_OK))
        (programs / name).symlink_to(path)
    done = subprocess.run(
        [SCRIPT, tmp_path / "agents"], env={"PATH": str(programs)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (
        78,
        (
            "setup_agents: npm was not found on PATH\n"
            "hint: install Node with npm (Debian and Ubuntu: apt-get install npm)\n"
        ),
    )
    assert SCRIPT.stat().st_mode & stat.S_IXUSR
