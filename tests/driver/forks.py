"""A project whose agent writes down what it was asked, so that a test sees what a fork paid for."""

from __future__ import annotations

import textwrap
from pathlib import Path

from interlock.app import App

AGENT = """#!/bin/sh
prompt=$(cat)
echo "$prompt" | head -1 >> "{log}"
case "$prompt" in
  *BROKEN*) exit 1;;
  *rubric*) case "$prompt" in *good*) echo '{{"complete":true,"missing":[],"feedback":""}}';;
            *) echo '{{"complete":false,"missing":[],"feedback":"say good"}}';; esac;;
  *"say good"*) echo "good $(echo "$prompt" | head -1)";;
  *) echo "did: $(echo "$prompt" | head -1)";;
esac
"""


class World:
    """A project with an agent that writes down each prompt's first line."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "calls.log"
        script = root / "agent.sh"
        script.write_text(AGENT.format(log=self.log), encoding="utf-8")
        script.chmod(0o755)
        (root / "interlock.toml").write_text(
            f'[run]\nengine = "a"\njudge = "a"\n[engines.a]\nkind = "agent"\nagent = "command"\ncommand = ["{script}"]\n',
            encoding="utf-8",
        )

    def write(self, text: str, name: str = "flow.md") -> Path:
        path = self.root / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def calls(self) -> list[str]:
        """Prompts sent since the last look."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return sorted(lines)


def census(app: App, run_id: str) -> list[tuple[int, int]]:
    return [(entry.by_state.get("completed", 0), entry.reused) for entry in app.store.census(run_id)]


def output(app: App, run_id: str, step: int) -> bytes | None:
    return app.store.artifact(run_id, step)
