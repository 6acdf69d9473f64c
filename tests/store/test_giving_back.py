"""Room in the journal's file that removed runs leave: given back to the disk where nobody waits for it, else said."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.store import builders as b
from tests.store.disks import on_a_small_disk

from interlock.model.run import Lease
from interlock.store import shrink
from interlock.store.room import Room
from interlock.store.sqlite import SqliteStore

UNITS = 4_000


def free(_lease: Lease) -> bool:
    return False


def held(_lease: Lease) -> bool:
    return True


def ended(store: SqliteStore, name: str, units: int) -> None:
    """A run with so many finished units that has ended."""
    mine = b.lease(name)
    store.create_run(b.new_run(name), mine)
    store.commit(mine, [b.started(units)])
    store.commit(mine, [b.reserved(unit) for unit in range(units)])
    store.commit(mine, [b.finished(unit) for unit in range(units)])
    b.finish_run(store, mine)
    store.release(mine)


def with_room(folder: Path) -> SqliteStore:
    """A journal in which most was removed, with a run that stays and one that is not released."""
    store = SqliteStore.open(folder / "journal.db")
    ended(store, "stays", 50)
    ended(store, "large", UNITS)
    store.create_run(b.new_run("last"), b.lease("last"))
    store.delete_run("large")
    return store


def test_the_room_that_removed_runs_leave_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with with_room(tmp_path) as store, closing(sqlite3.connect(path)) as raw:
        kept = raw.execute("PRAGMA page_count").fetchone()[0] - raw.execute("PRAGMA freelist_count").fetchone()[0]
        units = list(store.units("stays"))
        room = store.give_back(free)
        assert (room.free_bytes, room.why) == (0, "")
        assert room.given_back_bytes > 1_000_000
        assert path.stat().st_size <= (kept + 1) * raw.execute("PRAGMA page_size").fetchone()[0]
        assert (tmp_path / "journal.db-wal").stat().st_size == 0
        assert list(store.units("stays")) == units
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert store.give_back(free) == Room()
        ended(store, "next", 3)
        assert [run.id for run in store.runs()] == ["next", "last", "stays"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["journal.db"]


def test_a_few_free_pages_are_left_for_later_runs(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "journal.db") as store:
        ended(store, "stays", 50)
        ended(store, "small", 10)
        store.delete_run("small")
        size = (tmp_path / "journal.db").stat().st_size
        room = store.give_back(free)
        assert (room.given_back_bytes, room.why, room.free_bytes > 0) == (0, "", True)
        assert (tmp_path / "journal.db").stat().st_size == size


def test_nothing_is_given_back_beside_a_driver(tmp_path: Path) -> None:
    with with_room(tmp_path) as store:
        room = store.give_back(held)
        assert (room.given_back_bytes, room.why, room.free_bytes > 1_000_000) == (0, "a run is driven", True)
        store.release(b.lease("last"))
        assert store.give_back(held).given_back_bytes > 1_000_000


def test_what_would_take_long_is_left_half_way_and_the_journal_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shrink, "_LOOK_EACH", 10)
    monkeypatch.setattr(shrink, "_COPY_S", 0.0)
    with with_room(tmp_path) as store:
        room = store.give_back(free)
        assert (room.given_back_bytes, room.why) == (0, "it is so large that others would have to wait")
        assert room.free_bytes > 1_000_000
        ended(store, "next", 3)
        assert [run.id for run in store.runs()] == ["next", "last", "stays"]


@pytest.mark.parametrize(("begin", "freed"), [("BEGIN IMMEDIATE", False), ("BEGIN; SELECT count(*) FROM run", True)])
def test_a_busy_journal_is_left_alone_after_a_moment(tmp_path: Path, begin: str, *, freed: bool) -> None:
    with with_room(tmp_path) as store, closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as raw:
        for statement in begin.split("; "):
            raw.execute(statement).fetchall()
        room = store.give_back(free)
        assert (room.why, room.free_bytes == 0) == ("another process uses it", freed)
        raw.execute("COMMIT")
        assert [run.id for run in store.runs()] == ["last", "stays"]
    # what a reader held up is done when the last connection is closed
    assert ((tmp_path / "journal.db").stat().st_size < 1_000_000) is freed


MANY_RUNS = """
from tests.store import builders as b
from tests.store.test_giving_back import ended, free

from interlock.errors import StoreError
from interlock.store.sqlite import SqliteStore

path = Path(sys.argv[1]) / "journal.db"
small = [f"small-{number}" for number in range(12)]
with SqliteStore.open(path) as store:
    for name in small:
        ended(store, name, 300)
    ended(store, "large", 5_000)
    store.take_spool("large")
fill(path.parent)
with SqliteStore.open(path) as store:
    for name in ("large", *small):
        try:
            store.delete_run(name)
        except StoreError as error:
            print(name, error.code)
    print([run.id for run in store.runs()], store.give_back(free).why)
    (path.parent / "other").unlink()
    store.delete_run("large")
    print(store.give_back(free).given_back_bytes > 1_000_000)
"""


ALL_IN_THE_WAL = """
from tests.store import builders as b
from tests.store.test_giving_back import ended

from interlock.store.sqlite import SqliteStore

path = Path(sys.argv[1]) / "journal.db"
with SqliteStore.open(path) as store:
    ended(store, "small", 300)
    store.take_spool("small")
    print(path.stat().st_size, path.with_name("journal.db-wal").stat().st_size > 300_000)
    fill(path.parent)
    store.delete_run("small")
    print([run.id for run in store.runs()])
"""


def test_on_a_full_disk_what_was_kept_is_given_also_where_the_journal_itself_can_t_grow(tmp_path: Path) -> None:
    assert on_a_small_disk(tmp_path, "16m", ALL_IN_THE_WAL) == ["4096 True", "No space left on device", "[]"]


def test_on_a_full_disk_runs_are_removed_that_take_less_than_what_was_kept(tmp_path: Path) -> None:
    assert on_a_small_disk(tmp_path, "16m", MANY_RUNS) == [
        "No space left on device",
        "large journal-full",
        "['large'] the disk has no room for a copy of what is left",
        "True",
    ]
