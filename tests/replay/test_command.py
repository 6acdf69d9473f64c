"""`interlock replay` as a process, and the pytest plugin in a pytest of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_FLOW = "---\ntype: workflow\nsteps:\n  - id: one\n    run: echo hi\n---\n"
_TEST = """
import pytest
from interlock import InterlockError

def test_same(interlock_replay):
    found = interlock_replay((".", "last"), workflow="flow.md")
    found.assert_same()
    assert (found.state, found.outcome, found.exit_code) == ("completed", "ok", 0)
    assert found.steps["one"].artifact == "hi"
    assert found.units == {"one:solo": "completed"}

def test_fault(interlock_replay):
    found = interlock_replay((".", "last"), faults=["killed@one"])
    assert found.exit_code == 1
    assert found.steps["one"].state == "failed"

def test_other(interlock_replay):
    with pytest.raises(InterlockError, match="is no recording"):
        interlock_replay(("last",))

def test_differs(interlock_replay):
    interlock_replay((".", "last"), faults=["killed@one"]).assert_same()
"""


def _call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "interlock", *arguments]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "interlock.toml").write_text("")
    (tmp_path / "flow.md").write_text(_FLOW)
    assert _call(tmp_path, "run", "flow.md").returncode == 0
    return tmp_path


def test_a_replay_says_step_by_step_what_is_as_recorded(project: Path) -> None:
    said = _call(project, "replay", "last")
    assert said.returncode == 0
    assert said.stdout.splitlines()[1:] == ["  same     one: completed", "as recorded"]


def test_json_names_faults_and_differences(project: Path) -> None:
    said = _call(project, "replay", "last", "--fault", "timeout@one", "--json")
    found = json.loads(said.stdout)
    assert said.returncode == found["exit_code"] == 1
    assert found["schema"] == 1
    assert found["units"]["faulted"] == {"one:solo": "timeout@one"}
    assert found["same"] is False


def test_a_wrong_fault_is_wrong_usage(project: Path) -> None:
    said = _call(project, "replay", "last", "--fault", "timeout@two")
    assert said.returncode == 2
    assert "no step 'two'" in said.stderr


def test_the_plugin_makes_a_recorded_run_a_test(project: Path) -> None:
    (project / "test_flow.py").write_text(_TEST)
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_flow.py"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "1 failed, 3 passed" in said.stdout
    assert "the replay is not as recorded" in said.stdout


def test_the_plugin_loads_nothing_of_the_engine_until_it_is_used() -> None:
    code = "import sys, interlock.testing.pytest_plugin; print(sorted(m for m in sys.modules if m.startswith('interlock')))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout == "['interlock', 'interlock.testing', 'interlock.testing.pytest_plugin', 'interlock.version']\n"
