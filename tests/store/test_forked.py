"""A process forked while a journal is open: SQLite takes the parent's locks for the child's, and commits get lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.store import builders as b

from interlock.store.sqlite import SqliteStore

# a process of its own, since one with threads must not fork
_PROGRAM = """
import os, sys
from pathlib import Path
from tests.store import builders as b
from interlock.errors import StoreError
from interlock.store.sqlite import SqliteStore
folder = Path.cwd()
def begin(store):
    return store.create_run(b.new_run(), b.lease())
def forked(work):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            print(work())
        except StoreError as error:
            print(f"{error.code}: {error.message}; {error.hint}")
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
"""
_OPENED = {
    "to write": "SqliteStore.open(folder / 'journal.db')",
    "to read": "SqliteStore.open(folder / 'journal.db', read_only=True)",
}


def said_by(folder: Path, program: str) -> str:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM + program],
        cwd=folder,
        env={"PYTHONPATH": f"{root / 'src'}:{root}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("opened", _OPENED)
@pytest.mark.parametrize("work", ["lambda: store.runs()", f"lambda: {_OPENED['to write']}.runs()"])
def test_a_fork_is_refused_the_journal_that_its_parent_has_open(tmp_path: Path, opened: str, work: str) -> None:
    with SqliteStore.open(tmp_path / "journal.db") as store:
        store.create_run(b.new_run(), b.lease())
    said = said_by(tmp_path, f"store = {_OPENED[opened]}\nforked({work})\nprint(len(store.runs()))")
    assert said == (
        f"journal-forked: this process was forked from one that had the journal {tmp_path / 'journal.db'} open, and "
        "SQLite's locks don't come along; close the project before the fork, or start processes with `spawn`\n1\n"
    )


def test_what_a_fork_closes_is_still_its_parent_s(tmp_path: Path) -> None:
    program = f"store = {_OPENED['to write']}\nforked(lambda: store.close() or 'closed')\n"
    program += "print(begin(store), len(store.runs()))"
    assert said_by(tmp_path, program) == f"closed\n{b.RUN} 1\n"


def test_a_fork_may_open_what_its_parent_has_closed_and_other_journals(tmp_path: Path) -> None:
    program = "SqliteStore.open(folder / 'closed.db').close()\n"
    program += "store = SqliteStore.open(folder / 'other.db')\n"
    program += "forked(lambda: begin(SqliteStore.open(folder / 'closed.db')))"
    assert said_by(tmp_path, program) == f"{b.RUN}\n"
    with SqliteStore.open(tmp_path / "closed.db", read_only=True) as store:
        assert [run.id for run in store.runs()] == [b.RUN]


def test_a_journal_in_memory_is_each_process_s_own(tmp_path: Path) -> None:
    program = "store = SqliteStore.in_memory(folder)\nforked(lambda: begin(store))\nprint(store.runs())"
    assert said_by(tmp_path, program) == f"{b.RUN}\n[]\n"
