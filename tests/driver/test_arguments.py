"""Wrong types from Python are refused in words, before anything is written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import interlock
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
        ({"key": ""}, "key must be UTF-8 text that is not blank, or None, not '' (str)"),
        ({"key": "\udcff"}, "key must be UTF-8 text that is not blank, or None, not '\\udcff' (str)"),
        ({"key": 3}, "key must be UTF-8 text that is not blank, or None, not 3 (int)"),
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


def test_what_may_be_secret_or_long_is_not_shown() -> None:
    assert refusal(interlock.run, "x.md", {"a": {"hush"}, 3: "hush"}).endswith("or None, not a dict")
    assert len(refusal(interlock.open, b"x" * 1000)) < 200
