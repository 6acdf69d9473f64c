"""Proofs are programs of their own: they fork drivers, which a test process with threads must not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Prove = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def prove(tmp_path: Path) -> Prove:
    """Run a proof in a temporary folder of this test and return what it said."""

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        root = Path(__file__).parents[2]
        environ = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}", "TMPDIR": str(tmp_path)}
        return subprocess.run(
            [sys.executable, *argv], capture_output=True, text=True, check=False, timeout=280, env=environ
        )

    return run
