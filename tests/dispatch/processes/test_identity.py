from __future__ import annotations

import os
import subprocess

import msgspec
import pytest
from tests.dispatch.shop import until

from interlock.dispatch.processes import identity
from interlock.model.events import Process


def test_we_are_alive_and_always_the_same() -> None:
    process = identity.identify(os.getpid())
    assert process is not None
    assert process == identity.identify(os.getpid())
    assert identity.alive(process)
    assert len(process.boot_id) == 36


def test_a_pid_that_nobody_has_is_nobody() -> None:
    assert identity.identify(4_000_000) is None
    assert not identity.alive(Process(4_000_000, 1, identity.boot_id()))


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another"}])
def test_another_start_time_or_boot_is_another_process(change: dict[str, int | str]) -> None:
    process = identity.identify(os.getpid())
    assert process is not None
    assert not identity.alive(msgspec.structs.replace(process, **change))


def test_a_zombie_is_not_alive_but_can_still_be_named() -> None:
    child = subprocess.Popen(["true"])
    try:
        process = until(lambda: identity.identify(child.pid))
        until(lambda: not identity.alive(process))
        assert identity.identify(child.pid) == process
    finally:
        child.wait()
    assert identity.identify(child.pid) is None


def test_a_name_with_blanks_and_brackets_does_not_confuse_the_reader() -> None:
    raw = b"7 (a) R 9 (b)) S 1 7 8 0 -1 0 0 0 0 0 3 4 5 6 20 0 1 0 123456 0 0"
    assert identity.parse_stat(7, raw) == identity.Stat(7, 1, 7, 8, 123456, 18, running=True)
    assert identity.parse_stat(7, b"7 (cut") is None


def test_without_proc_psutil_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "HAS_PROC", False)
    process = identity.identify(os.getpid())
    assert process is not None
    assert identity.alive(process)
    assert identity.identify(4_000_000) is None
    assert not identity.alive(msgspec.structs.replace(process, start_ticks=1))


def test_the_pid_namespace_has_a_name() -> None:
    assert identity.pid_namespace().startswith("pid:[")
