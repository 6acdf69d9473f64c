"""A project with a real git repository, and workflows run in it through the Python API."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

import interlock
from interlock.driver.worktrees import KeptTree, Worktrees
from interlock.model import events as ev


class World:
    """One repository, its runs and what they told."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.notices: list[str] = []

    def git(self, *words: str) -> str:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        identity = {f"GIT_{who}_{what}": "tester" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        done = subprocess.run(
            ["git", *words], cwd=self.root, env=clean | identity, check=True, capture_output=True, text=True, timeout=60
        )
        return done.stdout.strip()

    def workflow(self, steps: str, body: str = "") -> Path:
        path = self.root / "flow.md"
        path.write_text(f"---\nsteps:\n{steps}---\n{body}", encoding="utf-8")
        return path

    def run(self, steps: str, body: str = "") -> tuple[Any, dict[str, Any], list[Any]]:
        """Run to where it can go; return the result, artifacts by step, and all units."""
        with interlock.open(self.root) as app:
            result = app.run_file(self.workflow(steps, body), on_event=self._note)
            return self._seen(app, result)

    def again(self, run_id: str) -> tuple[Any, dict[str, Any], list[Any]]:
        with interlock.open(self.root) as app:
            return self._seen(app, app.run_id(run_id, on_event=self._note))

    def approve(self, run_id: str, step: str) -> None:
        with interlock.open(self.root) as app:
            app.approve(run_id, step)

    def reject(self, run_id: str, step: str, note: str) -> None:
        with interlock.open(self.root) as app:
            app.reject(run_id, step, note=note)

    def kept(self) -> list[KeptTree]:
        return Worktrees(self.root, self.root / ".interlock").all()

    def registered(self) -> list[str]:
        lines = self.git("worktree", "list", "--porcelain").splitlines()
        return [line.removeprefix("worktree ") for line in lines if line.startswith("worktree ")][1:]

    def _note(self, events: Any, _snap: Any) -> None:
        self.notices += [event.text for event in events if isinstance(event, ev.Notice)]

    @staticmethod
    def _seen(app: Any, result: Any) -> tuple[Any, dict[str, Any], list[Any]]:
        artifacts = {
            step.id: msgspec.json.decode(app.store.artifact(result.run_id, step.step) or b"null")
            for step in app.store.steps(result.run_id)
        }
        return result, artifacts, list(app.store.units(result.run_id))


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.git("init", "-q", "-b", "main")
    (tmp_path / "file").write_text("one\n")
    (tmp_path / ".gitignore").write_text("flow.md\nmark\ninterlock.toml\n*.sh\n")
    made.git("add", "-A")
    made.git("commit", "-qm", "First")
    return made
