"""An exported run is replayed as the run itself is, wherever its file lies, and is a test beside a workflow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.export.files import forged, lines_of

_CONFIG = '[run]\nengine = "bot"\n[engines.bot]\nkind = "agent"\nagent = "command"\ncommand = ["sh", "bot.sh"]\n'
_FLOW = """---
params: { word: { type: string, default: hi } }
steps:
  - id: list
    run: echo '["a", "b"]'
    output: { type: array }
  - id: say
    map: { over: steps.list.output }
    gate: { check: grep -q said "$INTERLOCK_CONTEXT", each: true }
  - id: last
    run: echo "$INTERLOCK_PARAM_WORD"
---
## say
Say it.
"""


def _call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "interlock", *arguments]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def _exported(project: Path, text: str, *params: str, exit_code: int = 0) -> str:
    """Run the workflow, export the run, and return its id."""
    (project / "interlock.toml").write_text(_CONFIG)
    (project / "bot.sh").write_text("cat >/dev/null\necho said\n")
    (project / "flow.md").write_text(text)
    assert _call(project, "run", "flow.md", *params).returncode == exit_code
    done = _call(project, "export", "last", "-o", "run.export.gz", "--json")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["run"])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder that belongs to no project."""
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "elsewhere"


def test_an_export_is_replayed_where_neither_project_nor_engine_is(project: Path, elsewhere: Path) -> None:
    run = _exported(project, _FLOW)
    (project / "run.export.gz").rename(elsewhere / "run.export.gz")
    of_the_journal = _call(project, "replay", "last")
    done = _call(elsewhere, "replay", "--from", "run.export.gz")
    assert done.stdout == of_the_journal.stdout
    assert done.stdout.startswith(f"replay of {run}: completed (ok), 6 answers from the record\n")
    assert done.stdout.endswith("as recorded\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert [entry.name for entry in elsewhere.iterdir()] == ["run.export.gz"]


def test_faults_and_other_params_go_to_an_export_too(project: Path, elsewhere: Path) -> None:
    _exported(project, _FLOW)
    file = str(project / "run.export.gz")
    done = _call(elsewhere, "replay", "--from", file, "--fault", "timeout@say:b", "--json")
    assert done.returncode == 1
    assert list(json.loads(done.stdout)["units"]["faulted"].values()) == ["timeout@say:b"]
    (elsewhere / "params.json").write_text('{"word": "ho"}')
    for given in (["-p", "word=ho"], ["--params-file", "params.json"]):
        done = _call(elsewhere, "replay", "--from", file, *given, "--json")
        assert (done.returncode, len(json.loads(done.stdout)["units"]["changed_inputs"])) == (0, 4)
    done = _call(elsewhere, "replay", "--from", file, "-p", "wrd=ho")
    assert (done.returncode, "did you mean 'word'" in done.stderr) == (2, True)


def test_an_export_is_replayed_to_a_workflow_of_the_project_that_is_asked_from(project: Path, elsewhere: Path) -> None:
    _exported(project, _FLOW)
    file = str(project / "run.export.gz")
    (elsewhere / "interlock.toml").write_text(_CONFIG)
    (elsewhere / "new.md").write_text(_FLOW.replace("Say it.", "Say it well."))
    done = _call(elsewhere, "replay", "--from", file, "--workflow", "new.md", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["units"]["changed_inputs"]) == 2
    (elsewhere / "interlock.toml").write_text("")
    done = _call(elsewhere, "replay", "--from", file, "--workflow", "new.md")
    assert done.returncode == 2
    assert done.stderr.startswith("new.md:")


def test_an_export_with_hidden_values_is_replayed_with_what_stands_in_their_place(project: Path) -> None:
    text = """---
params: { api_token: { type: string }, pages: { type: array, default: [a?t=secret-1234, b] } }
steps:
  - id: each
    map: { over: params.pages }
    run: printf %s "$INTERLOCK_ITEM"
    gate: { check: 'true', each: true }
---
"""
    _exported(project, text, "-p", "api_token=secret-1234")
    done = _call(project, "replay", "--from", "run.export.gz", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["same"], found["units"]["answered"]) == (0, True, 4)
    # their recorded hashes are hidden, so that nobody can tell
    assert found["units"]["changed_inputs"] == []


def test_a_run_that_was_exported_before_its_end_is_refused_with_what_to_do(project: Path, elsewhere: Path) -> None:
    text = "---\nsteps:\n  - { id: one, run: echo hi }\n  - { id: two, run: sleep 60 }\n---\n"
    (project / "interlock.toml").write_text("")
    (project / "flow.md").write_text(text)
    assert _call(project, "run", "flow.md", "--timeout", "300ms").returncode == 130
    assert _call(project, "export", "last", "-o", str(elsewhere / "run.gz")).returncode == 0
    run = json.loads(_call(project, "list", "--json").stdout)[0]["id"]
    done = _call(elsewhere, "replay", "--from", "run.gz")
    assert done.stderr == (
        f"error: run {run} had not come to an end when run.gz was made, so its record is not whole\n"
        f"hint: export it again when it has ended: interlock export {run}\n"
    )
    assert (done.returncode, done.stdout) == (2, "")
    done = _call(project, "replay", "last")
    assert done.stderr == (
        f"error: run {run} has not come to an end, so its record is not whole\n"
        f"hint: drive it to its end first: interlock run {run}\n"
    )
    assert done.returncode == 2


def test_what_is_no_whole_export_is_not_replayed(project: Path) -> None:
    _exported(project, _FLOW)
    whole = (project / "run.export.gz").read_bytes()
    (project / "cut.gz").write_bytes(whole[:-1])
    for name, said in (
        ("cut.gz", "error: cut.gz is damaged after line "),
        ("flow.md", "error: flow.md is not an export of interlock\n"),
        ("none.gz", "error: can't read none.gz: no such file or directory\n"),
    ):
        done = _call(project, "replay", "--from", name)
        assert done.stderr.startswith(said)
        assert (done.returncode in (1, 2), done.stdout) == (True, "")


@pytest.mark.parametrize(("data", "said"), [([], "object"), ("text", "object"), ({}, "number"), (None, "object")])
def test_an_export_with_events_that_no_version_wrote_is_refused_in_words(
    project: Path, data: object, said: str
) -> None:
    _exported(project, _FLOW)
    lines = []
    for raw in lines_of(project / "run.export.gz"):
        line = json.loads(raw)
        row = line["data"].get("row", {})
        if row.get("type") == "attempt_finished":
            row["data"] = json.dumps(data)
        lines.append((line["kind"], line["data"]))
    (project / "forged.gz").write_bytes(forged(lines))
    done = _call(project, "replay", "--from", "forged.gz")
    assert done.returncode in (1, 2), done.stderr
    assert "internal" not in done.stderr
    assert said in done.stderr
    assert "hint: use the version" in done.stderr


_TEST = """
import pathlib
import pytest
from interlock import InterlockError

def test_it_comes_out_as_recorded(interlock_replay):
    found = interlock_replay("run.export.gz", workflow="../flow.md")
    found.assert_same()
    assert found.steps["last"].artifact == "hi"

def test_its_own_plan_will_do(interlock_replay):
    interlock_replay(pathlib.Path(__file__).with_name("run.export.gz"), params={"word": "ho"}).assert_same()

def test_a_fault_strikes(interlock_replay):
    assert interlock_replay("run.export.gz", faults=["timeout@say"]).exit_code == 1
    assert interlock_replay("run.export.gz", faults="timeout@say").exit_code == 1

def test_a_file_that_is_not_there_is_told(interlock_replay):
    with pytest.raises(InterlockError, match="can't read .*none.gz: no such file"):
        interlock_replay("none.gz")
"""


def test_the_plugin_replays_an_export_beside_the_test_wherever_pytest_is_called(project: Path, elsewhere: Path) -> None:
    _exported(project, _FLOW)
    tests = project / "tests"
    tests.mkdir()
    (project / "run.export.gz").rename(tests / "run.export.gz")
    (tests / "test_flow.py").write_text(_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests / "test_flow.py")]
    said = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False, timeout=60)
    assert "4 passed" in said.stdout, said.stdout
    assert list(elsewhere.iterdir()) == []
