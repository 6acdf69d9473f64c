"""A judged prompt whose drivers are killed around every commit: the loop goes on with the feedback that it had."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from interlock.app import App
from interlock.driver.configuration import require_config
from interlock.driver.project import project_at
from interlock.testing.drivers import KILLED, WORKFLOW, Killer, drive, fork, wait

FLOW = """---
steps:
  - id: write
    gate: { max_loops: 3 }
---
# Flow
## write
Write it.
### gate
It is final.
"""
CONFIG = """[run]
engine = "writer"
judge = "critic"
[engines.writer]
kind = "agent"
agent = "command"
command = ["{python}", "writer.py"]
[engines.critic]
kind = "agent"
agent = "command"
command = ["{python}", "critic.py"]
"""
WRITER = """import pathlib, sys
prompt = sys.stdin.read()
said = "say final" in prompt
with pathlib.Path("said.txt").open("a") as notes:
    notes.write("with feedback" if said else "without")
    notes.write(chr(10))
print("final" if said else "draft")
"""
CRITIC = """import json, sys
done = '"final' in sys.stdin.read()
print(json.dumps({"complete": done, "missing": [], "feedback": "" if done else "say final"}))
"""


def project(folder: Path) -> Path:
    folder.mkdir()
    (folder / ".interlock").mkdir(mode=0o700)
    (folder / WORKFLOW).write_text(FLOW, encoding="utf-8")
    (folder / "interlock.toml").write_text(CONFIG.format(python=sys.executable), encoding="utf-8")
    (folder / "writer.py").write_text(WRITER, encoding="utf-8")
    (folder / "critic.py").write_text(CRITIC, encoding="utf-8")
    return folder


def ending(folder: Path) -> tuple[str, list[tuple[str, str, bytes | None]]]:
    """Return the run's state, and each unit that ended with its result."""
    paths = project_at(folder)
    with App(paths, require_config(paths)) as app:
        (run,) = app.store.runs()
        return run.state, [(unit.id, unit.state, unit.result) for unit in app.store.units(run.id)]


def loops(folder: Path) -> int:
    """Return how many loops of the gated step the run has begun."""
    paths = project_at(folder)
    with App(paths, require_config(paths)) as app:
        return sum(unit.id.startswith("write:") for run in app.store.runs() for unit in app.store.units(run.id))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_driver_killed_around_any_commit_of_a_gate_loop_goes_on_in_that_loop_with_its_feedback(
    tmp_path: Path,
) -> None:
    whole = project(tmp_path / "whole")
    assert wait(fork(whole, drive)) == 0
    wanted = ending(whole)
    assert wanted[0] == "completed"
    assert [unit[0] for unit in wanted[1] if unit[0].endswith("~l2")] == ["write:solo~l2"]
    met, commit, alive = set[int](), 0, False
    while not alive:
        commit += 1
        assert commit < 60, "the run never ended by itself"
        for moment in ("before", "after"):
            folder = project(tmp_path / f"{moment}-{commit}")
            code = wait(fork(folder, partial(drive, Killer(moment, commit))))
            alive = code == 0
            assert alive or code == KILLED
            if not alive:
                met.add(loops(folder))
                assert wait(fork(folder, drive)) == 0, f"killed {moment} commit {commit}"
            assert ending(folder) == wanted, f"killed {moment} commit {commit}"
            said = (folder / "said.txt").read_text(encoding="utf-8").split("\n")
            assert said == sorted(said, key=("without", "with feedback", "").index), "a loop was begun again"
    # how many commits there are depends on which units end together; these moments there are always
    assert met == {0, 1, 2}
