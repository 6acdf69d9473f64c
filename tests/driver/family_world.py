"""What the tests of child runs share: a project, workflows with children, and drivers in processes of their own."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import interlock
from interlock.driver.result import Result
from interlock.store.base import RunRow

PARENT = "parent.md"
PATIENCE_S = 60.0
INPUT = """sed 's/.*"inputs":{[^:]*:"\\([^"]*\\)".*/\\1/' "$INTERLOCK_CONTEXT\""""
"""Says the step's only input, a text."""
ONE = """
steps:
  - { id: first, run: [echo, hello] }
  - { id: below, uses: ./child.md, with: { word: steps.first.output } }
  - { id: last, inputs: [steps.below.output], run: SHOWN }
"""
SAY = """
params: { word: { type: string, required: true }, mark: { type: string, default: "!" } }
steps:
  - { id: say, run: 'echo "$INTERLOCK_PARAM_WORD$INTERLOCK_PARAM_MARK"' }
  - { id: again, inputs: [steps.say.output], run: SHOWN }
"""
ONE, SAY = (text.replace("SHOWN", json.dumps(INPUT)) for text in (ONE, SAY))
MAP = """
params: { names: { type: array, default: [a, b, c] } }
steps:
  - id: each
    on_error: ON_ERROR
    map: { over: params.names, concurrency: 2 }
    uses: ./child.md
    with: { name: item }
"""
FLAKY = """
params: { name: {} }
steps:
  - { id: once, run: 'echo "once $INTERLOCK_PARAM_NAME" >> said' }
  - { id: flaky, run: 'echo "try $INTERLOCK_PARAM_NAME" >> said; test -e "mended-$INTERLOCK_PARAM_NAME"' }
  - { id: end, run: 'echo "ok $INTERLOCK_PARAM_NAME"' }
"""
ASK = """
params: { name: { type: string, default: me } }
steps:
  - { id: make, run: 'echo "made $INTERLOCK_PARAM_NAME" >> said; echo done' }
  - { id: ask, run: [echo, asked], gate: { approval: true } }
"""


class World:
    """A project with workflow files, and the App on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".interlock").mkdir(mode=0o700)
        self.app = interlock.open(folder)

    def write(self, **workflows: str) -> None:
        for name, text in workflows.items():
            (self.folder / f"{name}.md").write_text(f"---\n{text}\n---\n", encoding="utf-8")

    def run(self, **options: Any) -> Result:
        return self.app.run_file(self.folder / PARENT, **options)

    def children(self, run_id: str) -> list[RunRow]:
        return self.app.store.children(run_id)

    def states(self, run_id: str) -> dict[str, str]:
        return {step.id: step.state for step in self.app.store.steps(run_id)}

    def artifact(self, run_id: str, step: str) -> Any:
        index = [row.id for row in self.app.store.steps(run_id)].index(step)
        return json.loads(self.app.store.artifact(run_id, index) or b"null")

    def lines(self, name: str = "said") -> list[str]:
        path = self.folder / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def mend(world: World, *names: str) -> None:
    for name in names:
        (world.folder / f"mended-{name}").touch()


def drive_elsewhere(world: World) -> subprocess.Popen[bytes]:
    """Drive the parent in a process of its own."""
    source = Path(__file__).parents[2] / "src"
    return subprocess.Popen(
        [sys.executable, "-m", "interlock", "run", PARENT],
        cwd=world.folder,
        env={**os.environ, "PYTHONPATH": str(source)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def until(true: Callable[[], bool]) -> None:
    """Wait until it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not _quietly(true):
        assert time.monotonic() < deadline, "it never became true"
        threading.Event().wait(0.02)


def _quietly(true: Callable[[], bool]) -> bool:
    try:
        return true()
    except (sqlite3.Error, interlock.InterlockError):
        # the journal is just being made
        return False
