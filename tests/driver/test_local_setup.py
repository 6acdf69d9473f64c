"""What this machine gives a run where nothing else is said."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from interlock.app import open_project
from interlock.driver.local_setup import default_concurrency
from interlock.errors import UsageError


@pytest.mark.parametrize(("cores", "wide"), [(1, 4), (2, 4), (3, 6), (8, 16), (64, 16)])
def test_a_map_is_twice_as_wide_as_there_are_cores_within_bounds(
    monkeypatch: pytest.MonkeyPatch, cores: int, wide: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    assert default_concurrency() == wide


def test_a_run_on_another_system_is_refused_in_words_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "flow.md").write_text("---\nsteps:\n  - id: a\n    run: exit 0\n---\n", encoding="utf-8")
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UsageError, match="runs are driven on Linux only, and this is darwin"):
        open_project(tmp_path).run_file(tmp_path / "flow.md")
    assert [path.name for path in tmp_path.iterdir()] == ["flow.md"]
