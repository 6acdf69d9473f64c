"""What a merge left off its branch is said where the run's end and its state are shown."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]
FLOW = """---
params: {{ items: {{ type: array, default: [x, y, z] }} }}
steps:
  - id: mend
    isolation: worktree
    map: {{ over: params.items, reducer: merge, concurrency: 1 }}
    run: {run}
    gate: {{ check: test ! -e bad }}
---
"""


@pytest.mark.parametrize(
    ("run", "left"),
    [
        ("echo $INTERLOCK_ITEM > shared", "2 of 3 not merged (2 conflicts)"),
        (
            "if [ $INTERLOCK_ITEM = x ]; then touch bad; fi; echo $INTERLOCK_ITEM > shared",
            "2 of 3 not merged (1 conflict, 1 rejected)",
        ),
        ("echo > $INTERLOCK_ITEM", ""),
    ],
)
def test_a_merge_that_left_something_off_its_branch_says_so(
    run: str, left: str, interlock: Call, tmp_path: Path
) -> None:
    (tmp_path / "flow.md").write_text(FLOW.format(run=json.dumps(run)), encoding="utf-8")
    for words in ("init --quiet", "add flow.md", "-c user.name=t -c user.email=t@t commit --quiet -m one"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    done = interlock("run", "flow.md", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    name = done.stdout.split()[1]
    told = f"  mend: {left}; see `interlock status {name} --artifact mend`\n"
    assert (told in done.stdout) is bool(left)
    (line,) = [line for line in interlock("status", cwd=tmp_path).stdout.splitlines() if line.startswith("✓ mend")]
    assert f"3 units: 3 completed; {left}; {{" in line if left else "not merged" not in line


def test_of_what_only_looks_like_a_merge_nothing_is_said(interlock: Call, tmp_path: Path) -> None:
    told = json.dumps({"branch": "b", "tree": "t", "merged": [], "conflicts": [1], "rejected": []})
    step = f"{{ id: told, run: {json.dumps('echo ' + repr(told))}, output: {{ type: object }} }}"
    (tmp_path / "flow.md").write_text(f"---\nsteps:\n  - {step}\n---\n", encoding="utf-8")
    done = interlock("run", "flow.md", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not merged" not in done.stdout + interlock("status", cwd=tmp_path).stdout
