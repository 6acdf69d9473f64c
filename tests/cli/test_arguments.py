"""What is passed on as it was written: a command's arguments, and options that can be given once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]


def test_an_empty_argument_reaches_the_command_and_the_check(interlock: Interlock, tmp_path: Path) -> None:
    (tmp_path / "flow.md").write_text(
        "---\nsteps:\n  - id: a\n    run: [printf, '%s|', a, '', b]\n    gate: { check: [test, '', '=', ''] }\n---\n",
        encoding="utf-8",
    )
    done = interlock("run", "flow.md", "--json", cwd=tmp_path)
    (step,) = json.loads(done.stdout.splitlines()[-1])["steps"]
    assert (done.returncode, step["artifact"]) == (0, "a||b|")
