"""Worktrees go by the ids that `interlock units` prints, and are listed with the items that they are of."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
FLOW = """---
steps:
  - { id: items, run: "echo '[3, 7]'", output: { type: array } }
  - id: fix
    map: { over: steps.items.output }
    isolation: worktree
    retry: { max: 1, on: [non_zero_exit], backoff: { initial: 1ms } }
    run: echo "$INTERLOCK_ITEM in $INTERLOCK_ATTEMPT" > new.txt; test "$INTERLOCK_ATTEMPT" = 2
---
"""
THREE = "fix:4e07408562bedb8b"


@pytest.fixture
def project(tmp_path: Path, interlock: Interlock) -> Path:
    """A run of two items that each left something in two attempts."""
    (tmp_path / "flow.md").write_text(FLOW, encoding="utf-8")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)
    assert interlock("run", "flow.md", cwd=tmp_path).returncode == 0
    return tmp_path


def test_a_unit_s_id_names_what_its_last_attempt_left(project: Path, interlock: Interlock) -> None:
    ids = [unit["id"] for unit in json.loads(interlock("units", "last", "--json", cwd=project).stdout)]
    assert THREE in ids
    patch = interlock("worktrees", "diff", "last", THREE, cwd=project).stdout
    assert (patch.count("+3 in 2"), patch.count("+3 in")) == (1, 1)
    assert "+3 in 1" in interlock("worktrees", "diff", "last", f"{THREE}/1", cwd=project).stdout
    assert interlock("worktrees", "apply", "last", THREE, cwd=project).returncode == 0
    assert (project / "new.txt").read_text(encoding="utf-8") == "3 in 2\n"
    assert interlock("worktrees", "drop", "last", THREE, cwd=project).stdout == "dropped 2 worktrees\n"
    refused = interlock("worktrees", "diff", "last", THREE, cwd=project)
    assert f"{THREE} is kept" in refused.stderr


def test_a_listing_says_which_item_a_worktree_is_of_while_the_journal_is_there(
    project: Path, interlock: Interlock
) -> None:
    listed = interlock("worktrees", "list", "last", cwd=project).stdout.splitlines()
    assert listed[0].split() == ["RUN", "UNIT", "ITEM", "COMMIT", "FILES", "FOLDER"]
    assert [line.split()[1:3] for line in listed[1:3]] == [[f"fix.4e07408562bedb8b/{n}", "3"] for n in (1, 2)]
    first = json.loads(interlock("worktrees", "list", "--json", cwd=project).stdout)[0]
    assert (first["id"], first["index"], first["item"]) == (THREE, 0, 3)
    (project / ".interlock/journal.db").write_bytes(b"no journal" * 1000)
    found = json.loads(interlock("worktrees", "list", "--json", cwd=project).stdout)
    assert [(tree["unit"], tree["id"], tree["item"]) for tree in found[:1]] == [("fix.4e07408562bedb8b", None, None)]
