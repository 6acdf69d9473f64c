"""A map over what another one left null: what is said, and that what is offered works."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
SCAN = """---
params: { files: { type: array, default: [a, b, c] } }
steps:
  - { id: scan, map: { over: params.files }, on_error: continue, run: 'echo "$INTERLOCK_ITEM" | tee -a out | grep -v b' }
"""
LEAVE_OUT = """\
  - id: found
    inputs: { all: steps.scan.output }
    run: jq '[.inputs.all[] | values]' "$INTERLOCK_CONTEXT"
    output: { type: array }
"""
USE = "  - {{ id: use, map: {{ over: steps.{}.output }}, run: 'echo \"got $INTERLOCK_ITEM\"' }}\n---\n"


def test_a_map_over_nulls_says_what_to_do_and_what_is_offered_works(tmp_path: Path, interlock: Interlock) -> None:
    flow = tmp_path / "flow.md"
    flow.write_text(SCAN + USE.format("scan"), encoding="utf-8")
    warned = interlock("lint", "flow.md", cwd=tmp_path)
    assert (warned.returncode, "'scan' puts null for each item that fails" in warned.stdout) == (0, True), warned
    done = interlock("run", "flow.md", cwd=tmp_path)
    why = (
        "  step 'use': steps.scan.output[1] is null; the items of a map must not be, and 'scan' puts null for what "
        "failed: leave that out in a step between\n"
    )
    assert (done.returncode, why in done.stdout) == (1, True), done.stdout
    # no resume: it would find the same null
    assert re.findall(r"interlock (\w+) \S+", done.stdout) == ["fork"]
    flow.write_text(SCAN + LEAVE_OUT + USE.format("found"), encoding="utf-8")
    assert interlock("lint", "flow.md", cwd=tmp_path).stderr == "no faults found\n"
    fork = interlock("fork", "last", cwd=tmp_path)
    assert fork.returncode == 6, "what failed is left out, and told: " + fork.stdout + fork.stderr
    steps = json.loads(interlock("status", "--json", cwd=tmp_path).stdout)["steps"]
    assert steps[-1]["artifact"] == ["got a", "got c"]
    assert sorted((tmp_path / "out").read_text(encoding="utf-8").split()) == ["a", "b", "b", "c"], "only b ran again"
