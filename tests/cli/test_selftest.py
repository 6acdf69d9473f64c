"""The self-test as a user starts it; the matrix itself is tested in tests/crash."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path


def test_a_quick_look_kills_resumes_and_says_that_all_held(
    interlock: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = interlock("selftest", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["schema"], report["holds"]) == (1, True)
    assert any(case["killed"] for case in report["cases"])
    assert all(not case["twice"] and not case["left"] for case in report["cases"])
