from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store import builders as b
from tests.stranger import as_stranger

from interlock.errors import JournalBusyError, JournalTooNewError, StoreError
from interlock.store import connection, migrate, sql
from interlock.store.migrate import statements
from interlock.store.mounts import network_filesystem
from interlock.store.sqlite import SqliteStore

GOLDEN = Path(__file__).with_name("golden")
MOUNTS = """\
/dev/vda / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/export /mnt/my\\040share nfs4 rw 0 0
me@host:/home /home/me/far fuse.sshfs rw 0 0
/dev/vdb /mnt/my\\040share/local ext4 rw 0 0
overlay /data ext4 rw 0 0
//nas/data /data cifs rw 0 0
broken
"""


def test_a_new_journal_is_private_and_durable(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with SqliteStore.open(path) as store:
        store.create_run(b.new_run(), b.lease())
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert {stat.S_IMODE(entry.stat().st_mode) for entry in tmp_path.iterdir()} == {0o600}
        assert store.notice == ""
        raw = store._db.raw  # noqa: SLF001 - the pragmas of the connection that writes
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert raw.execute("PRAGMA synchronous").fetchone() == (2,)
    assert [entry.name for entry in tmp_path.iterdir()] == ["journal.db"]


def test_a_journal_survives_its_connection(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    for number in range(3):
        with SqliteStore.open(path) as store:
            store.create_run(b.new_run(f"r{number}"), b.lease(f"r{number}"))
    with SqliteStore.open(path, read_only=True) as store:
        assert len(store.runs()) == 3
    store.close()


def test_every_commit_is_announced_before_and_after(tmp_path: Path) -> None:
    seen: list[str] = []
    with SqliteStore.open(tmp_path / "journal.db", on_commit=seen.append) as store:
        # of the schema
        assert seen == ["before", "after"]
        store.create_run(b.new_run(), b.lease())
        assert seen == ["before", "after"] * 2
        store.renew(b.lease())
        store.commit(b.lease(), [b.started(1)])
        assert seen == ["before", "after"] * 4
        with pytest.raises(StoreError):
            store.commit(b.lease(), [b.reserved(9)])
        assert seen == ["before", "after"] * 4


def test_dying_before_a_commit_leaves_nothing_of_it(tmp_path: Path) -> None:
    def die(when: str) -> None:
        raise KeyboardInterrupt(when)

    path = tmp_path / "journal.db"
    with SqliteStore.open(path) as store:
        store.create_run(b.new_run(), b.lease())
    with SqliteStore.open(path, on_commit=die) as store:
        with pytest.raises(KeyboardInterrupt, match="before"):
            store.commit(b.lease(), [b.started(1)])
        assert list(store.units(b.RUN)) == []


def test_dying_before_the_commit_of_the_schema_leaves_a_file_that_the_next_takes(tmp_path: Path) -> None:
    def die(when: str) -> None:
        raise KeyboardInterrupt(when)

    path = tmp_path / "journal.db"
    with pytest.raises(KeyboardInterrupt, match="before"):
        SqliteStore.open(path, on_commit=die)
    assert SqliteStore.open_if_any(path) is None
    with SqliteStore.open(path) as store:
        store.create_run(b.new_run(), b.lease())


def test_a_newer_journal_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    SqliteStore.open(path).close()
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    for read_only in (False, True):
        with pytest.raises(JournalTooNewError) as caught:
            SqliteStore.open(path, read_only=read_only)
        assert str(caught.value) == f"the journal {path} has version 99, this interlock reads up to 1"
        assert caught.value.hint == "upgrade interlock"


def test_a_database_of_something_else_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE album (title)")
    raw.close()
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreError) as caught:
            SqliteStore.open(path, read_only=read_only)
        assert str(caught.value) == f"{path} is a database, but not an interlock journal"
    assert path.read_bytes() == before


def test_reading_where_no_journal_is_creates_none(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with pytest.raises(StoreError) as caught:
        SqliteStore.open(path, read_only=True)
    assert (caught.value.code, str(caught.value)) == ("no-journal", f"there is no journal at {path}")
    assert not path.exists()
    path.touch()
    with pytest.raises(StoreError) as caught:
        SqliteStore.open(path, read_only=True)
    assert caught.value.code == "no-journal"


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "journal.db"
    with pytest.raises(StoreError) as caught:
        SqliteStore.open(path)
    assert str(caught.value) == f"reading or writing {path} failed: No such file or directory"


def test_a_golden_journal_of_version_1_still_loads(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    shutil.copyfile(GOLDEN / "journal-v1.db", path)
    with SqliteStore.open(path) as store:
        assert [(run.id, run.state, run.outcome) for run in store.runs()] == [
            ("20300101-r2", "active", None),
            ("20300101-r1", "active", None),
            ("20300101-r0", "completed", "degraded"),
        ]
        assert [u.state for u in store.units("20300101-r0")] == ["completed", "failed", "completed"]
        assert store.artifact("20300101-r0", 0) == b'["ok",null]'
        assert store.load("20300101-r1").open[0].dispatch == "d1.0.1"
        assert store.commit(b.lease(), [b.finished(0, step=1)]).lost is False
        (child,) = store.children("20300101-r2")
        assert (child.id, child.parent_unit, child.root, child.state) == (
            "20300101-r2-child",
            "s:w0",
            "20300101-r2",
            "blocked",
        )


def test_a_golden_journal_keeps_what_prompts_judges_and_people_left(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    shutil.copyfile(GOLDEN / "journal-v1.db", path)
    with SqliteStore.open(path) as store:
        loaded = store.load("20300101-r1")
        assert (loaded.parked, loaded.granted) == ({"coder": 900}, {1: 2})
        assert [(seen.engine, seen.input_tokens) for seen in loaded.usage_seen] == [("coder", 70)]
        assert (loaded.tokens, loaded.cost_usd, store.spent("20300101-r1").estimated) == (20_100, 0.5, 20_000)
        (said,) = store.approvals("20300101-r1")
        assert (said.made_by, said.verdict, said.override, said.note) == ("ann", "pass", True, "good enough")
        again = list(store.units("20300101-r1"))[4]
        assert (again.session, again.feedback, again.asks) == ("s1", b'{"feedback":"more","missing":[]}', 1)


def test_a_migration_that_fails_leaves_the_old_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.db"
    SqliteStore.open(path).close()
    good = sql.migrations("sqlite")
    broken = (*good, "CREATE TABLE extra (x);\nCREATE TABLE run (x);\n")
    monkeypatch.setattr(migrate, "migrations", lambda _dialect: broken)
    with pytest.raises(StoreError, match="run already exists"):
        SqliteStore.open(path)
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA user_version").fetchone() == (1,)
    assert raw.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'extra'").fetchone() == (0,)
    raw.close()
    monkeypatch.setattr(migrate, "migrations", lambda _dialect: (*good, "CREATE TABLE extra (x);\n"))
    with SqliteStore.open(path) as store:
        assert store._db.raw.execute("PRAGMA user_version").fetchone() == (2,)  # noqa: SLF001


def test_a_script_is_split_at_whole_statements() -> None:
    assert statements("-- a; b\nSELECT 1;\nSELECT ';'\n;\n") == ["-- a; b\nSELECT 1;\n", "SELECT ';'\n;\n"]


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/tmp/x", ""),  # noqa: S108 - a place in the made-up table
        ("/mnt/my share/p/journal.db", "nfs4"),
        ("/mnt/my share/local/journal.db", ""),
        ("/mnt/my sharex/journal.db", ""),
        ("/home/me/far", "fuse.sshfs"),
        ("/data/j", "cifs"),
    ],
)
def test_network_file_systems_are_told_by_the_mount_table(place: str, kind: str) -> None:
    assert network_filesystem(Path(place), MOUNTS) == kind


def test_on_a_network_file_system_a_rollback_journal_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.db"
    SqliteStore.open(path).close()
    monkeypatch.setattr(connection, "mount_table", lambda: f"server:/x {tmp_path} nfs rw 0 0\n")
    with SqliteStore.open(path) as store:
        assert store.notice == (
            f"{path} lies on a network file system (nfs): the journal uses a rollback journal instead of WAL"
        )
        store.create_run(b.new_run(), b.lease())
        assert store._db.raw.execute("PRAGMA journal_mode").fetchone() == ("delete",)  # noqa: SLF001
    assert [entry.name for entry in tmp_path.iterdir()] == ["journal.db"]


def test_a_second_writer_waits_a_bounded_time_and_says_busy(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with SqliteStore.open(path) as first, SqliteStore.open(path, busy_ms=50) as second:
        first.create_run(b.new_run(), b.lease())
        with first._db.write():  # noqa: SLF001 - a transaction held open
            with pytest.raises(JournalBusyError) as caught:
                second.commit(b.lease(), [b.started(1)])
            assert str(caught.value) == f"the journal {path} is busy: another process holds its write lock"
            assert second.run(b.RUN).state == "active"
            with SqliteStore.open(path, read_only=True) as reader:
                assert len(reader.runs()) == 1
        assert not second.commit(b.lease(), [b.started(1)]).lost


def test_opening_beside_a_writer_in_another_process_works(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from interlock.store.sqlite import SqliteStore\n"
        "from tests.store import builders as b\n"
        "with SqliteStore.open(Path(sys.argv[1])) as store:\n"
        "    store.create_run(b.new_run(sys.argv[2]), b.lease(sys.argv[2]))\n"
        "    for n in range(50):\n"
        "        store.renew(b.lease(sys.argv[2], renewed_ms=n))\n"
    )
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([root, str(Path(root) / "src")])}
    racing = [subprocess.Popen([sys.executable, "-c", code, str(path), name], env=env) for name in ("a", "b", "c", "d")]
    assert [process.wait(60) for process in racing] == [0, 0, 0, 0]
    with SqliteStore.open(path, read_only=True) as store:
        assert sorted(run.id for run in store.runs()) == ["a", "b", "c", "d"]


@pytest.fixture
def sealed() -> Iterator[Path]:
    """A folder outside of pytest's private one, which `nobody` may enter."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


def _seen(path: Path) -> str:
    with SqliteStore.open(path, read_only=True) as store:
        try:
            store.create_run(b.new_run("new"), b.lease("new"))
        except StoreError as error:
            return f"{[run.id for run in store.runs()]} {error.code}"
        return "written"


def test_a_read_only_folder_can_be_read(sealed: Path) -> None:
    path = sealed / "journal.db"
    with SqliteStore.open(path) as store:
        store.create_run(b.new_run(), b.lease())
    path.chmod(0o644)
    sealed.chmod(0o555)
    assert as_stranger(lambda: _seen(path)) == f"['{b.RUN}'] journal-read-only"


def test_a_read_only_folder_that_a_crash_left_can_be_read(sealed: Path) -> None:
    crashed = sealed / "crashed"
    crashed.mkdir()
    source = sealed / "journal.db"
    with SqliteStore.open(source) as store:
        store.create_run(b.new_run(), b.lease())
        for suffix in ("", "-wal"):
            copy = crashed / f"journal.db{suffix}"
            shutil.copyfile(f"{source}{suffix}", copy)
            copy.chmod(0o644)
    sealed.chmod(0o755)
    crashed.chmod(0o555)
    assert as_stranger(lambda: _seen(crashed / "journal.db")) == f"['{b.RUN}'] journal-read-only"
    crashed.chmod(0o700)


def test_a_read_only_folder_cannot_be_written(sealed: Path) -> None:
    sealed.chmod(0o555)

    def write() -> str:
        with pytest.raises(StoreError) as caught:
            SqliteStore.open(sealed / "journal.db")
        return caught.value.code

    assert as_stranger(write) == "journal-read-only"


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_written_into_a_journal_that_was_removed_or_replaced(tmp_path: Path, replaced: bool) -> None:  # noqa: FBT001 - a case
    path = tmp_path / "journal.db"
    with SqliteStore.open(path) as store:
        path.rename(tmp_path / "moved.db")
        if replaced:
            path.touch()
        with pytest.raises(StoreError) as caught:
            store.create_run(b.new_run(), b.lease())
        assert (caught.value.code, str(caught.value)) == (
            "journal-gone",
            f"the journal {path} was removed or replaced while it was in use",
        )
        path.unlink(missing_ok=True)
        (tmp_path / "moved.db").rename(path)
        store.create_run(b.new_run(), b.lease())
