"""Variables that a command looks for and that were too large to be one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]
LEFT = "left out, for its size or a NUL in it; read it from the file that INTERLOCK_CONTEXT names"


@pytest.mark.parametrize(
    ("run", "named"),
    [
        ('test -n "$INTERLOCK_ITEM"', "INTERLOCK_ITEM"),
        ('test -n "$INTERLOCK_PARAM_ITEMS"', "INTERLOCK_PARAM_ITEMS"),
        ("python3 -c 'import os; os.environ[\"INTERLOCK_ITEM\"]'", "INTERLOCK_ITEM"),
    ],
)
def test_a_command_that_misses_a_variable_for_its_size_is_told_where_to_read_it(
    run: str, named: str, interlock: Call, tmp_path: Path
) -> None:
    assert _error(interlock, tmp_path, run, ["x" * 70_000]).endswith(f"; {named}: {LEFT}")


@pytest.mark.parametrize(
    ("run", "item"),
    [
        ("echo INTERLOCK_ITEM is no good >&2; exit 1", "x"),
        ("echo INTERLOCK_ITEM_INDEX is no good >&2; exit 1", "x" * 70_000),
        ("echo no good >&2; exit 1", "x" * 70_000),
    ],
)
def test_a_command_that_complains_of_something_else_is_told_nothing_more(
    run: str, item: str, interlock: Call, tmp_path: Path
) -> None:
    assert _error(interlock, tmp_path, run, [item]).endswith("no good")


def _error(interlock: Call, folder: Path, run: str, items: list[str]) -> str:
    steps = {
        "params": {"items": {"type": "array"}},
        "steps": [{"id": "m", "map": {"over": "params.items"}, "run": run}],
    }
    (folder / "flow.md").write_text(f"---\n{json.dumps(steps)}\n---\n", encoding="utf-8")
    (folder / "params.json").write_text(json.dumps({"items": items}), encoding="utf-8")
    done = interlock("run", "flow.md", "--params-file", "params.json", cwd=folder)
    assert done.returncode == 1, done.stdout + done.stderr
    events = interlock("status", "last", "--json", cwd=folder).stdout
    return str(json.loads(events)["steps"][0]["feedback"])
