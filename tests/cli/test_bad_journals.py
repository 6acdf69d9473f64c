"""A journal that can't be used, met by whole processes: told in words, nothing dispatched, and once mended the run goes on."""

from __future__ import annotations

import io
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, suppress
from pathlib import Path

import pytest
from tests.disks import small_disk
from tests.stranger import as_stranger, give_to_stranger

from interlock.cli import program

# each thing that is done leaves a mark; the check can't be had before `open` is there, and is asked again by `run`
FLOW = """---
steps:
  - id: one
    run: echo one >> marks
    gate: { check: echo asked >> marks; test -e open || exit 126 }
  - id: two
    run: echo two >> marks
---
"""
BEFORE = ["one", "asked"]
AFTER = [*BEFORE, "asked", "two"]
CHECK_UNAVAILABLE = 3
Interlock = Callable[..., "subprocess.CompletedProcess[str]"]


def begin(interlock: Interlock, folder: Path) -> Path:
    """Run to the gate, and open it for whoever goes on; return the journal."""
    (folder / "flow.md").write_text(FLOW, encoding="utf-8")
    done = interlock("run", "flow.md", cwd=folder)
    assert done.returncode == CHECK_UNAVAILABLE, done.stderr
    (folder / "open").touch()
    return folder / ".interlock" / "journal.db"


def marks(folder: Path) -> list[str]:
    return (folder / "marks").read_text(encoding="utf-8").split()


def refused(interlock: Interlock, folder: Path, *said: str) -> None:
    """Assert that neither going on nor a new run gets anywhere, and that each says why and what to do."""
    for target in ("last", "flow.md"):
        done = interlock("run", target, cwd=folder)
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        # a note on the unfinished run may stand before
    assert done.stderr.splitlines()[-len(said) :] == list(said)
    assert marks(folder) == BEFORE


def goes_on(interlock: Interlock, folder: Path) -> None:
    done = interlock("run", "last", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert marks(folder) == AFTER


def test_a_newer_journal_stops_all_and_is_left_as_it_is(interlock: Interlock, tmp_path: Path) -> None:
    journal = begin(interlock, tmp_path)
    version = set_version(journal, 99)
    before = journal.read_bytes()
    refused(
        interlock,
        tmp_path,
        f"error: the journal {journal} has version 99, this interlock reads up to 1",
        "hint: upgrade interlock",
    )
    assert journal.read_bytes() == before
    set_version(journal, version)
    goes_on(interlock, tmp_path)


def set_version(journal: Path, version: int) -> int:
    """Give the journal that version and return the one that it had."""
    with closing(sqlite3.connect(journal)) as raw:
        (had,) = raw.execute("PRAGMA user_version").fetchone()
        raw.execute(f"PRAGMA user_version = {version}")
    return int(had)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda whole: whole[:20_000], "the file ends inside a page"),
        (lambda whole: b"x" * len(whole), "file is not a database"),
    ],
)
def test_a_damaged_journal_stops_all_until_a_copy_is_back(
    damage: Callable[[bytes], bytes], said: str, interlock: Interlock, tmp_path: Path
) -> None:
    journal = begin(interlock, tmp_path)
    whole = journal.read_bytes()
    journal.write_bytes(damage(whole))
    refused(
        interlock,
        tmp_path,
        f"error: the journal {journal} is damaged: {said}",
        f"hint: keep a copy, look with `sqlite3 {journal} 'PRAGMA integrity_check'`, "
        "then restore a backup or move the file away",
    )
    assert journal.read_bytes() == damage(whole)
    journal.write_bytes(whole)
    goes_on(interlock, tmp_path)


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder outside of pytest's private one, which `nobody` may enter."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    shutil.rmtree(folder)


def test_a_read_only_folder_stops_all_until_it_may_be_written(interlock: Interlock, outside: Path) -> None:
    state = begin(interlock, outside).parent
    # all that the stranger's program needs is imported now: this checkout may be where only its owner can read
    for command in ("run", "status"):
        with redirect_stderr(io.StringIO()):
            assert program.run(["--project", str(outside), command, "no-such-run"]) == 2
    give_to_stranger(outside)
    state.chmod(0o555)

    def go_on() -> str:
        # the tests' own configuration is in a folder that is not for strangers
        os.environ["XDG_CONFIG_HOME"] = str(outside)
        with redirect_stderr(io.StringIO()) as told:
            code = program.run(["--project", str(outside), "run", "last"])
        return f"{code} {told.getvalue()}"

    try:
        said = as_stranger(go_on)
    finally:
        state.chmod(0o700)
        for path in (outside, *outside.rglob("*")):
            os.lchown(path, os.geteuid(), os.getegid())
    assert said.splitlines() == [
        f"1 error: can't write to {state}: permission denied",
        "hint: make the folder writable, or name another one with --project",
    ]
    assert marks(outside) == BEFORE
    goes_on(interlock, outside)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own of one MiB where one can be mounted, else a folder."""
    with small_disk(tmp_path / "small", "1m") as place:
        yield place


def fill(place: Path) -> Path:
    """Write until nothing more can be written."""
    filler = place / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))
    return filler


def limited(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the program where no file may grow beyond a block."""
    call = [sys.executable, "-c", "from interlock.cli.entry import main; main()", *arguments]
    limit = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *call]
    return subprocess.run(limit, cwd=cwd, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_a_full_disk_stops_all_until_there_is_space(interlock: Interlock, small: Path) -> None:
    journal = begin(interlock, small)
    filler = fill(small) if small.is_mount() else None
    refused(
        limited if filler is None else interlock,
        small,
        *(
            (f"error: no space left to write {journal}", "hint: free some space; nothing that was recorded is lost")
            if filler
            else (
                f"error: reading or writing {journal} failed: disk I/O error",
                "hint: check the disk (full, quota, unplugged, failing)",
            )
        ),
    )
    if filler is not None:
        # no file can be made beside the journal, and none is needed to look
        for verb in ("status", "list", "units", "events"):
            assert interlock(verb, *(() if verb in {"status", "list"} else ("last",)), cwd=small).returncode == 0
        filler.unlink()
    goes_on(interlock, small)


def test_text_that_is_none_is_told_without_the_words_of_a_codec(interlock: Interlock, tmp_path: Path) -> None:
    journal = begin(interlock, tmp_path)
    with closing(sqlite3.connect(journal)) as db:
        db.execute("UPDATE step SET detail = CAST(x'df41' AS TEXT)")
        db.commit()
    told = interlock("status", "last", cwd=tmp_path)
    assert (told.returncode, told.stdout) == (1, "")
    expected = f"error: the journal {journal} is damaged: what should be text is not UTF-8\n"
    assert told.stderr.startswith(expected), told.stderr
