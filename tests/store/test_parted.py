"""A journal and its WAL belong together: what is left of one without the other is refused, and never written over."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.store import builders as b

from interlock.errors import JournalCorruptError
from interlock.store import connection
from interlock.store.sqlite import SqliteStore


def killed(path: Path) -> None:
    """Leave a journal as a killed driver does: all of it in the WAL."""
    code = (
        "import os, sys; from pathlib import Path; from interlock.store.sqlite import SqliteStore\n"
        "from tests.store import builders as b\n"
        "SqliteStore.open(Path(sys.argv[1])).create_run(b.new_run(), b.lease()); os._exit(0)"
    )
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, env=env, timeout=60)


@pytest.mark.parametrize("state", ["missing", "empty"])
def test_what_was_written_last_is_not_given_up_where_the_file_it_belongs_to_is_gone(tmp_path: Path, state: str) -> None:
    path, wal = tmp_path / "journal.db", tmp_path / "journal.db-wal"
    killed(path)
    kept, written = path.read_bytes(), wal.read_bytes()
    path.unlink()
    if state == "empty":
        path.touch()
    for read_only in (False, True):
        with pytest.raises(JournalCorruptError) as caught:
            SqliteStore.open(path, read_only=read_only)
        assert (
            str(caught.value)
            == f"the journal {path} is {state}, though journal.db-wal beside it holds what was written to it last"
        )
        assert (
            caught.value.hint == f"put the file back beside it; or, to begin anew without these runs, move {wal} away"
        )
    assert wal.read_bytes() == written
    path.write_bytes(kept)
    with SqliteStore.open(path) as store:
        assert [run.id for run in store.runs()] == [b.RUN]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_journal_that_another_one_begins_at_this_moment_is_not_taken_for_a_torn_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, read_only: bool
) -> None:
    path = tmp_path / "journal.db"
    path.touch()
    size_of = connection._size  # noqa: SLF001 - between two of these looks the other one comes

    with contextlib.ExitStack() as other:

        def size(looked_at: Path) -> int:
            found = size_of(looked_at)
            monkeypatch.undo()
            other.enter_context(SqliteStore.open(path)).create_run(b.new_run(), b.lease())
            return found

        monkeypatch.setattr(connection, "_size", size)
        store = other.enter_context(SqliteStore.open(path, read_only=read_only))
        assert [run.id for run in store.runs()] == [b.RUN]


def test_a_journal_that_was_copied_without_its_wal_is_damaged_where_runs_left_logs(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    killed(path)
    (tmp_path / "journal.db-wal").unlink()
    (tmp_path / "journal.db-shm").unlink()
    assert SqliteStore.open_if_any(path) is None
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "20300101-r1.log").touch()
    for read_only in (False, True):
        with pytest.raises(JournalCorruptError) as caught:
            SqliteStore.open(path, read_only=read_only)
        assert "it holds nothing, though runs have left logs beside it; perhaps its WAL was lost" in str(caught.value)
