"""Wrong types from Python are refused in words, before anything is written."""

from __future__ import annotations

import enum
import math
import os
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


class Day(enum.StrEnum):
    MONDAY = "mon"


def test_a_key_that_is_only_made_of_text_is_refused_before_a_run_begins(tmp_path: Path) -> None:
    told = refusal(interlock.run, tmp_path / "flow.md", project=tmp_path, key=Day.MONDAY)
    assert told == "key must be UTF-8 text that is not blank, or None, not <Day.MONDAY: 'mon'> (Day)"


@pytest.mark.parametrize("path", ["a\0b", Path("a\0b")])
def test_a_path_with_a_nul_is_refused_as_text_and_as_path(path: str | Path) -> None:
    told = f"must be {{}}, not {'a PosixPath' if isinstance(path, Path) else repr(path) + ' (str)'}"
    one = told.format("a path as text or pathlib.Path")
    folder = told.format("a folder as text or pathlib.Path, or None")
    assert refusal(interlock.run, path) == f"path {one}"
    assert refusal(interlock.open_export, path) == f"path {one}"
    assert refusal(interlock.open, path) == f"project {folder}"


def test_lint_names_the_one_of_its_paths_that_is_none(tmp_path: Path) -> None:
    told = "paths must be paths, each as text or pathlib.Path, not "
    assert refusal(interlock.lint, str(tmp_path), None, project=tmp_path) == f"{told}None (NoneType)"
    assert refusal(interlock.lint, "", project=tmp_path) == f"{told}'' (str)"


def test_names_longer_than_the_system_takes_are_told_like_those_that_are_not_there(tmp_path: Path) -> None:
    name = "a" * 300
    with pytest.raises(UsageError) as caught:
        interlock.open(tmp_path / name)
    assert caught.value.message == f"{tmp_path / name} is not a folder"
    (found,) = interlock.lint(tmp_path / name, project=tmp_path)
    assert (found.code, found.message) == ("unreadable", "can't read the workflow: file name too long")
    with interlock.open(tmp_path) as app, pytest.raises(UsageError) as missing:
        app.preview(name)
    assert missing.value.code == "run-not-found"


def test_a_current_folder_that_is_gone_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for call in (
        interlock.open,
        lambda: interlock.run("flow.md"),
        lambda: interlock.lint("flow.md"),
        lambda: interlock.run("flow.md", project=tmp_path),
        lambda: interlock.lint("flow.md", project=tmp_path),
    ):
        with pytest.raises(UsageError) as caught:
            call()
        assert caught.value.message == "the current folder does not exist any more"
        assert caught.value.hint == "change into one that does: cd DIR"
    os.chdir(tmp_path)


@pytest.mark.parametrize(
    ("verb", "args", "named", "message"),
    [
        ("find", (3,), {}, "text must be text, not 3 (int)"),
        ("run_id", (None,), {}, "run_id must be text, not None (NoneType)"),
        (
            "run_id",
            ("x",),
            {"timeout_s": math.nan},
            "timeout_s must be a number of seconds, or None for no limit, not nan (float)",
        ),
        ("run_id", ("x",), {"wait": 3}, "wait must be True or False, not 3 (int)"),
        ("preview", (None,), {}, "target must be a workflow file or the id of a run, not None (NoneType)"),
        ("run_file", (3,), {}, "path must be a path as text or pathlib.Path, not 3 (int)"),
        ("run_file", ("x", [1]), {}, "params must be a mapping of names to JSON values, or a ParamsInput, not a list"),
        ("run_file", ("x",), {"on_event": 3}, "on_event must be a function, or None, not 3 (int)"),
        ("run_file", ("x",), {"if_running": "wait"}, "if_running must be 'fail', 'skip' or None, not 'wait' (str)"),
        ("lint", ("x",), {}, "paths must be paths, each as text or pathlib.Path, not 'x' (str)"),
        ("replay", ("x",), {"faults": "timeout@a"}, "faults must be a list of texts, not 'timeout@a' (str)"),
        ("fork", ({"run": "x"},), {}, "order must be a ForkOrder, not a dict"),
        (
            "resume",
            ("x",),
            {"raises": {"max_tokns": 3}},
            "raises must be a mapping of ceilings to numbers (max_units, max_tokens, max_cost_usd, max_duration_ms), not a dict",
        ),
        ("resume", ("x",), {"loops": -1}, "loops must be a number of loops, not -1 (int)"),
        ("approve", ("x", 3), {}, "target must be the id of a step or gate as text, or None, not 3 (int)"),
        ("reject", ("x",), {"note": b"no"}, "note must be UTF-8 text, not b'no' (bytes)"),
        ("resolve", ("x", "a:solo"), {"done": "yes"}, "done must be True or False, not 'yes' (str)"),
        (
            "resolve",
            ("x", "a:solo"),
            {"done": True, "result_json": {}},
            "result_json must be JSON as text, or None, not a dict",
        ),
        ("gc", (), {"older_than_ms": "1"}, "older_than_ms must be a whole number of milliseconds, not '1' (str)"),
    ],
)
def test_the_verbs_of_an_app_refuse_them_and_write_nothing(
    tmp_path: Path, verb: str, args: tuple[Any, ...], named: dict[str, Any], message: str
) -> None:
    with interlock.open(tmp_path) as app:
        assert refusal(getattr(app, verb), *args, **named) == message
    assert not (tmp_path / ".interlock").exists()


def test_an_app_takes_paths_as_text_and_params_as_a_mapping_as_run_does(tmp_path: Path) -> None:
    flow = tmp_path / "flow.md"
    flow.write_text(
        "---\nparams: { name: { type: string } }\nsteps: [{ id: a, run: echo $INTERLOCK_PARAM_NAME >> said }]\n---\n",
        encoding="utf-8",
    )
    with interlock.open(tmp_path) as app:
        assert app.lint([str(flow)]) == []
        assert app.preview(str(flow), {"name": "Ada"}).steps[0].id == "a"
        run_id = app.run_file(str(flow), {"name": "Ada"}).run_id
        assert (tmp_path / "said").read_text(encoding="utf-8") == "Ada\n"
        replayed = app.replay(run_id, workflow=str(flow), params={"name": "Bea"})
    assert [step.state for step in replayed.steps] == ["completed"]
