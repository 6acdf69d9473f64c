"""The shell in which the pages' commands run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)
