"""`import interlock` in a plain script: what it takes, what it returns and what it raises, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Script = Callable[[str], Any]
FLOW = """---
params:
  name: { type: string, default: world }
  numbers: { type: array, items: { type: integer }, default: [] }
steps:
  - id: say
    run: echo "hello $INTERLOCK_PARAM_NAME" | tee -a said
  - id: double
    map: { over: params.numbers, output: { type: integer } }
    run: echo $((INTERLOCK_ITEM * 2))
    on_error: continue
---
"""
# a script prints what it found as JSON; the helper names the fields of a result
HEAD = """import json
import interlock

def told(result):
    return {name: getattr(result, name) for name in result.__struct_fields__}

"""


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Runs a script in a folder beside the project `place`, and returns what it printed; nothing else is written."""
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "interlock.toml").touch()
    (tmp_path / "place" / "flow.md").write_text(FLOW, encoding="utf-8")
    (tmp_path / "elsewhere").mkdir()

    def call(text: str) -> Any:
        path = tmp_path / "script.py"
        path.write_text(HEAD + text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, path],
            cwd=tmp_path / "elsewhere",
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return [json.loads(line) for line in done.stdout.splitlines()]

    return call


def said(folder: Path) -> list[str]:
    return (folder / "place" / "said").read_text(encoding="utf-8").splitlines()


def test_a_script_gives_values_and_gets_a_result(script: Script, tmp_path: Path) -> None:
    first, status, listed = script(
        """
result = interlock.run("../place/flow.md", {"name": "it's \\"me\\"", "numbers": [1, 2]}, project="../place")
print(json.dumps(told(result)))
with interlock.open("../place") as app:
    print(json.dumps([[step.id, step.state] for step in app.store.steps(result.run_id)]))
    print(json.dumps([[row.id, row.state] for row in app.store.runs()]))
"""
    )
    run_id = first.pop("run_id")
    done = {"state": "completed", "outcome": "ok", "exit_code": 0, "reason": None, "detail": "", "instead": None}
    assert first == done
    assert status == [["say", "completed"], ["double", "completed"]]
    assert listed == [[run_id, "completed"]]
    assert said(tmp_path) == ['hello it\'s "me"']
    assert not list((tmp_path / "elsewhere").iterdir())


def test_without_a_project_it_is_found_from_where_the_script_stands(script: Script, tmp_path: Path) -> None:
    (result,) = script(
        """
import os
os.chdir("../place")
print(json.dumps(told(interlock.run("flow.md"))))
"""
    )
    assert result["exit_code"] == 0
    assert said(tmp_path) == ["hello world"]
    assert (tmp_path / "place" / ".interlock").is_dir()


def test_a_key_continues_what_is_unfinished_and_reports_what_is_finished(script: Script, tmp_path: Path) -> None:
    (tmp_path / "place" / "flow.md").write_text(
        "---\nsteps:\n  - { id: one, run: echo one >> said }\n"
        "  - { id: two, run: test -e open || sleep 60; echo two >> said }\n---\n",
        encoding="utf-8",
    )
    cut, more, again, other = script(
        """
import pathlib
def go(key, timeout_s=None):
    print(json.dumps(told(interlock.run("../place/flow.md", project="../place", key=key, timeout_s=timeout_s))))
go("monday", 0.5)
pathlib.Path("../place/open").touch()
go("monday")
go("monday")
go("tuesday")
"""
    )
    assert (cut["state"], cut["outcome"], cut["exit_code"]) == ("active", None, 130)
    assert (more["state"], more["outcome"], more["exit_code"]) == ("completed", "ok", 0)
    assert cut["run_id"] == more["run_id"] == again["run_id"] != other["run_id"]
    assert again == more
    assert said(tmp_path) == ["one", "two"] * 2


def test_results_tell_of_failures_and_of_people(script: Script, tmp_path: Path) -> None:
    steps = {
        "failed": "{ id: a, run: exit 7 }",
        "degraded": "{ id: a, run: exit 7, on_error: continue }",
        "person": "{ id: a, run: echo a, gate: { approval: true } }",
        "rejected": "{ id: a, run: echo a, gate: { check: echo no; exit 1 } }",
    }
    for name, step in steps.items():
        (tmp_path / "place" / f"{name}.md").write_text(f"---\nsteps:\n  - {step}\n---\n", encoding="utf-8")
    found = script(
        f"""
ids = {{}}
for name in {list(steps)}:
    result = interlock.run(f"../place/{{name}}.md", project="../place")
    ids[name] = result.run_id
    print(json.dumps([result.state, result.outcome, result.exit_code, result.reason]))
with interlock.open("../place") as app:
    app.approve(ids["person"])
    print(json.dumps(app.run_id(ids["person"]).exit_code))
"""
    )
    assert found == [
        ["failed", "failed", 1, "non_zero_exit"],
        ["completed", "degraded", 6, None],
        ["blocked", None, 4, "approval_needed"],
        ["blocked", None, 3, "gate_rejected"],
        0,
    ]


def test_what_is_wrong_is_raised_as_an_error_with_code_message_and_hint(script: Script, tmp_path: Path) -> None:
    (tmp_path / "place" / "slip.md").write_text(
        "---\nsteps:\n  - { id: a, run: 'true', timeuot: 1s }\n---\n", encoding="utf-8"
    )
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "interlock.toml").write_text("[run]\nmax_concurency = 1\n", encoding="utf-8")
    found = script(
        """
def tried(call):
    try:
        call()
    except interlock.InterlockError as error:
        names = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "interlock.errors"]
        assert str(error) == error.message
        print(json.dumps([names[0], error.code, error.exit_code, error.message, error.hint]))
        return error
    print(json.dumps(None))
slip = tried(lambda: interlock.run("../place/slip.md", project="../place"))
print(json.dumps([[d.line, d.column, d.code, d.hint] for d in slip.diagnostics]))
tried(lambda: interlock.run("../place/flow.md", {"name": 7}, project="../place"))
tried(lambda: interlock.run("../place/flow.md", {"nmae": "me"}, project="../place"))
tried(lambda: interlock.open("../nowhere"))
open("flow.md", "w").write("---\\nsteps:\\n  - { id: a, run: echo }\\n---\\n")
tried(lambda: interlock.run("flow.md", project="../wrong"))
tried(lambda: interlock.open("../wrong").config)
print(json.dumps(interlock.open("../wrong").store.runs()))
open("../place/.interlock", "w").close()
tried(lambda: interlock.run("../place/flow.md", project="../place"))
"""
    )
    usage = ["UsageError", "invalid-params", 2]
    wrong, in_the_way = tmp_path / "wrong" / "interlock.toml", tmp_path / "place" / ".interlock"
    assert found == [
        ["WorkflowError", "invalid-workflow", 2, "1 error in ../place/slip.md", ""],
        [[3, 27, "unknown-key", "did you mean 'timeout'?"]],
        [*usage, "param 'name': 7 is not of type \"string\"", ""],
        [*usage, "there is no param 'nmae' (did you mean 'name')", ""],
        ["UsageError", "no-such-folder", 2, "../nowhere is not a folder", "name the folder that the project is in"],
        ["ConfigError", "invalid-config", 78, f"1 error in {wrong}", ""],
        ["ConfigError", "invalid-config", 78, f"1 error in {wrong}", ""],
        [],
        ["StoreError", "state-dir-blocked", 1, f"{in_the_way} is in the way: it is not a folder", "move it away"],
    ]
    assert not (tmp_path / "place" / "said").exists()


def test_lint_returns_what_it_found_and_writes_nothing(script: Script, tmp_path: Path) -> None:
    (tmp_path / "place" / "below").mkdir()
    (tmp_path / "place" / "below" / "slip.md").write_text(
        "---\nsteps:\n  - { id: a, run: 'true', timeuot: 1s }\n---\n", encoding="utf-8"
    )
    # a prompt without a fault, as long as it is the project's own configuration that is read
    (tmp_path / "place" / "ask.md").write_text("---\nsteps:\n  - { id: ask }\n---\n## ask\nWhat?\n", encoding="utf-8")
    (tmp_path / "place" / "interlock.toml").write_text(
        '[run]\nengine = "e"\n[engines.e]\nkind = "agent"\nagent = "command"\ncommand = ["cat"]\n', encoding="utf-8"
    )
    clean, found, missing = script(
        """
def shown(*paths):
    found = interlock.lint(*paths, project="../place")
    assert all(isinstance(one, interlock.Diagnostic) for one in found)
    print(json.dumps([[one.file, one.line, one.column, one.severity, one.message] for one in found]))
shown("../place/flow.md")
shown("../place")
shown("../place/nothing.md", "../place/flow.md")
"""
    )
    assert clean == []
    assert found == [["../place/below/slip.md", 3, 27, "error", "unknown key 'timeuot' in a step"]]
    assert missing == [["../place/nothing.md", 1, 1, "error", "there is no such file"]]
    assert not (tmp_path / "place" / ".interlock").exists()
