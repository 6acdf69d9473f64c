from __future__ import annotations

import resource

import pytest

from interlock.dispatch.processes.open_files import OF_A_COMMAND, OpenFiles


@pytest.mark.parametrize(
    ("free", "held", "idle", "expected"),
    [
        (1_000, 0, True, 20),
        (60, 0, True, 12),
        (60, 30, False, 6),
        (60, 60, False, 0),
        (60, 60, True, 1),
        (3, 0, True, 1),
    ],
)
def test_as_much_work_begins_as_there_are_files_for_and_one_at_least_where_nothing_else_would_end(
    monkeypatch: pytest.MonkeyPatch, free: int, held: int, expected: int, *, idle: bool
) -> None:
    files = OpenFiles()
    before = files._before  # noqa: SLF001 - what is open here is no matter of the table
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (before + 64 + free, 4_096))
    assert files.places(20, OF_A_COMMAND, held=held, idle=idle) == expected


def test_without_a_limit_all_may_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert OpenFiles().places(256, OF_A_COMMAND, held=10_000, idle=False) == 256
