"""Wrong types from Python are refused in words, before anything is written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.driver.arguments import checks_arguments
from interlock.errors import UsageError


def refusal(call: Any, *args: Any, **named: Any) -> str:
    with pytest.raises(UsageError) as caught:
        call(*args, **named)
    assert caught.value.code == "wrong-argument"
    return caught.value.message


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"timeout_s": "0.5"}, "timeout_s must be a number of seconds, or None for no limit, not '0.5' (str)"),
        ({"timeout_s": "1"}, "timeout_s must be a number of seconds, or None for no limit, not '1' (str)"),
        ({"timeout_s": True}, "timeout_s must be a number of seconds, or None for no limit, not True (bool)"),
        ({"timeout_s": math.nan}, "timeout_s must be a number of seconds, or None for no limit, not nan (float)"),
        ({"timeout_s": math.inf}, "timeout_s must be a number of seconds, or None for no limit, not inf (float)"),
        ({"timeout_s": -1}, "timeout_s must be a number of seconds, or None for no limit, not -1 (int)"),
        ({"key": ""}, "key must be text that is not blank, or None, not '' (str)"),
        ({"key": 3}, "key must be text that is not blank, or None, not 3 (int)"),
        ({"params": [("a", 1)]}, "params must be a mapping of names to JSON values, or None, not a list"),
        ({"params": {1: 2}}, "params must be a mapping of names to JSON values, or None, not a dict"),
        ({"project": 3}, "project must be a folder as text or pathlib.Path, or None, not 3 (int)"),
    ],
)
def test_run_refuses_wrong_types_and_writes_nothing(tmp_path: Path, named: dict[str, Any], message: str) -> None:
    (tmp_path / "flow.md").write_text("---\nsteps: [{ id: a, run: 'true' }]\n---\n", encoding="utf-8")
    assert refusal(interlock.run, tmp_path / "flow.md", **{"project": tmp_path, **named}) == message
    assert not (tmp_path / ".interlock").exists()


def test_the_other_functions_refuse_them_too(tmp_path: Path) -> None:
    assert refusal(interlock.run, 3).startswith("path must be a path as text or pathlib.Path, not 3")
    assert refusal(interlock.lint, ["a.md"]).startswith("paths must be paths, each as text or pathlib.Path, not ")
    assert refusal(interlock.open, 3).startswith("project must be ")
    assert refusal(interlock.open_export, None).startswith("path must be ")
    assert interlock.lint(str(tmp_path), project=tmp_path) == []


def test_the_verbs_of_an_open_project_refuse_them_too(tmp_path: Path) -> None:
    flow = tmp_path / "flow.md"
    flow.write_text("---\nsteps: [{ id: a, run: 'true' }]\n---\n", encoding="utf-8")
    with interlock.open(tmp_path) as app:
        calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
            (app.run_file, (str(flow),), {}, "path must be a pathlib.Path"),
            (app.run_file, (flow, {"a": 1}), {}, "params must be a ParamsInput"),
            (app.run_file, (flow,), {"if_running": "wait"}, "if_running must be 'fail', 'skip' or None"),
            (app.run_id, ("last",), {"wait": 1}, "wait must be True or False"),
            (app.resume, (b"x",), {}, "run_id must be text"),
            (app.resume, ("x",), {"raises": {"max_units": "3"}}, "raises must be a mapping of ceilings to numbers"),
            (app.resume, ("x",), {"loops": -1}, "loops must be a whole number of at least 0"),
            (app.replay, ("x",), {"faults": "timeout@a"}, "faults must be a list of texts"),
            (app.approve, ("x",), {"note": None}, "note must be text"),
            (app.gc, (), {"older_than_ms": 1.5}, "older_than_ms must be a whole number"),
            (app.lint, ([str(flow)],), {}, "paths must be a list of pathlib.Path"),
        ]
        for call, args, named, message in calls:
            assert refusal(call, *args, **named).startswith(f"{message}, not ")
        assert not (tmp_path / ".interlock").exists()
        assert app.run_file(flow, timeout_s=60).exit_code == 0


def test_only_verbs_are_wrapped_and_what_may_be_secret_is_not_shown() -> None:
    @checks_arguments
    class Some:
        value = 3

        def verb(self, run_id: str, other: int = 0) -> str:
            return f"{run_id}{other}{self._own(loops=-1)}"

        def _own(self, loops: int) -> int:
            return loops

    assert Some().verb("x", other=3) == "x3-1"
    assert refusal(Some().verb, ["hush"]) == "run_id must be text, not a list"
    assert len(refusal(Some().verb, b"x" * 1000)) < 200
