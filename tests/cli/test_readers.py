"""What becomes of a command when nobody takes what it writes: its exit code is its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
PROGRAM = [sys.executable, "-c", "from interlock.cli.entry import main; main()"]
FAULTY = "---\nsteps:\n" + "  - { id: a, rum: x }\n" * 40 + "---\n"


def unread(folder: Path, *arguments: str, both: bool = False) -> subprocess.CompletedProcess[bytes]:
    """The program with a standard output whose reader has left; with `both`, standard error too."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [*PROGRAM, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=writer if both else subprocess.PIPE,
            check=False,
            timeout=60,
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize(("options", "both"), [((), False), ((), True), (("--json",), False)])
def test_lint_of_a_faulty_file_ends_with_2_without_a_reader(
    tmp_path: Path, options: tuple[str, ...], *, both: bool
) -> None:
    (tmp_path / "flow.md").write_text(FAULTY, encoding="utf-8")
    assert unread(tmp_path, "lint", "flow.md", *options, both=both).returncode == 2


def test_replay_doctor_and_status_end_as_they_would_with_a_reader(tmp_path: Path, interlock: Interlock) -> None:
    (tmp_path / "flow.md").write_text("---\nsteps:\n  - { id: a, run: echo x }\n---\n", encoding="utf-8")
    assert interlock("run", "flow.md", cwd=tmp_path).returncode == 0
    done = unread(tmp_path, "replay", "last", "--fault", "timeout@a")
    assert (done.returncode, done.stderr) == (1, b"")
    (tmp_path / "interlock.toml").write_text("[env.e]\nvars = ['NEVER_SET_HERE']\n", encoding="utf-8")
    for options in ((), ("--json",)):
        assert unread(tmp_path, "doctor", *options).returncode == 1
    assert unread(tmp_path, "status", "last").returncode == 0
    cut = unread(tmp_path, "export", "last", "-o", "-")
    assert (cut.returncode, cut.stderr.splitlines()[0]) == (1, b"error: who read the export left before it was whole")


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("list",), ("events", "last")])
def test_a_reader_who_leaves_help_or_a_listing_has_seen_what_he_wanted(
    tmp_path: Path, interlock: Interlock, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "flow.md").write_text("---\nsteps:\n  - { id: a, run: echo x }\n---\n", encoding="utf-8")
    if arguments[-1] == "last":
        assert interlock("run", "flow.md", cwd=tmp_path).returncode == 0
    done = unread(tmp_path, *arguments)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_a_full_device_would_not_take_is_told_and_is_a_failure_only_where_all_was_well(tmp_path: Path) -> None:
    (tmp_path / "bad.md").write_text(FAULTY, encoding="utf-8")
    for code, arguments in ((2, ("lint", "bad.md")), (1, ("schema",)), (1, ("list",))):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [*PROGRAM, *arguments], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
            )
        assert done.returncode == code
        # what a command has to say of itself stands in its code already
        told = b"standard output: No space left on device" in done.stderr
        assert told is (code == 1)
