from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.child import in_a_child
from tests.store import builders as b

from interlock.errors import JournalCorruptError, StoreError
from interlock.model.states import RunState
from interlock.store.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]
PAGE = 4_096


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A closed journal with a row of every kind, as bytes."""
    path = tmp_path_factory.mktemp("healthy") / "journal.db"
    with SqliteStore.open(path) as store:
        mine = b.begin(store, 40)
        store.commit(mine, [b.reserved(i) for i in range(40)])
        store.commit(mine, [*(b.finished(i) for i in range(39)), b.waiting(39)])
        store.request(b.RUN, "raise", b'{"max_units":9}', "ann", 5)
        store.commit(mine, [b.run_moved(RunState.ACTIVE, driven_ms=5)])
    return path.read_bytes()


def read_all(path: Path, *, read_only: bool) -> None:
    """Every reading verb, and a write where allowed."""
    with SqliteStore.open(path, read_only=read_only) as store:
        for run in store.runs():
            store.load(run.id)
            store.census(run.id)
            store.events(run.id)
            store.steps(run.id)
            store.requests(run.id, open_only=False)
            store.read_lease(run.id)
            store.attempts(run.id, 0, 0)
            assert sum(1 for _ in store.units(run.id)) <= 40
        if not read_only:
            store.commit(b.lease(), [b.reserved(39, 2), b.finished(39, 2)])


def outcome(path: Path, *, read_only: bool) -> str:
    """`read`, or the code of the StoreError; anything else that is raised fails the test."""
    try:
        read_all(path, read_only=read_only)
    except StoreError as error:
        return error.code
    return "read"


def test_a_journal_cut_anywhere_gives_a_store_error_and_no_other(healthy: bytes, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    whole = len(healthy)
    cuts = sorted({*range(0, 120, 7), *range(100, whole, 1_511), *range(PAGE, whole, PAGE), whole - 1})
    seen = set()
    for cut in cuts:
        for read_only in (True, False):
            _fresh(path, healthy[:cut])
            found = outcome(path, read_only=read_only)
            # an empty file is a journal that was never written
            assert found != "read" or (cut == 0 and not read_only), cut
            seen.add(found)
    assert "journal-corrupt" in seen


def test_a_journal_with_a_damaged_stretch_gives_a_store_error_or_reads(healthy: bytes, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    seen = set()
    for start in range(0, len(healthy), 397):
        for junk in (b"\xff", b"\x00", b"7"):
            damaged = bytearray(healthy)
            damaged[start : start + 24] = junk * len(damaged[start : start + 24])
            _fresh(path, bytes(damaged))
            seen.add(outcome(path, read_only=True))
    assert {"read", "journal-corrupt"} <= seen


def _fresh(path: Path, content: bytes) -> None:
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(content)


def test_a_corrupt_journal_says_how_to_look_closer(healthy: bytes, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"not a database at all, but long enough to be looked at" * 20)
    with pytest.raises(JournalCorruptError) as caught:
        SqliteStore.open(path)
    assert str(caught.value) == f"the journal {path} is damaged: file is not a database"
    assert caught.value.hint == (
        f"keep a copy, look with `sqlite3 {path} 'PRAGMA integrity_check'`, then restore a backup or move the file away"
    )
    assert healthy


def test_what_sqlite_cannot_see_is_damage_too(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with SqliteStore.open(path) as store:
        b.begin(store)
    raw = sqlite3.connect(path)
    raw.execute("UPDATE step SET route = 'no json'")
    raw.commit()
    raw.close()
    with SqliteStore.open(path) as store, pytest.raises(JournalCorruptError):
        store.steps(b.RUN)


@pytest.mark.parametrize("damage", ["verdict = 'maybe'", "verdict = ''", "kind = 'vote'", "asks = 'many'"])
def test_a_damaged_verdict_stops_the_run_instead_of_being_ignored(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "journal.db"
    with SqliteStore.open(path) as store:
        mine = b.begin(store, 1, gate=("check",))
        store.commit(mine, [b.reserved(0), b.finished(0), b.asked("x", first=1)])
        store.commit(mine, [b.reserved(1), b.finished(1, verdict="reject")])
    raw = sqlite3.connect(path)
    # a strict table refuses this: write past its rules, as a failing disk does
    raw.execute("PRAGMA ignore_check_constraints = ON")
    raw.execute("PRAGMA writable_schema = ON")
    raw.execute("UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')') WHERE name = 'unit'")
    raw.commit()
    raw.close()
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA ignore_check_constraints = ON")
    raw.execute(f"UPDATE unit SET {damage} WHERE ordinal = 1")  # noqa: S608 - the case's own text
    raw.commit()
    raw.close()
    with SqliteStore.open(path) as store, pytest.raises(JournalCorruptError):
        list(store.units(b.RUN))


def test_a_wal_cut_anywhere_keeps_what_was_committed_before(tmp_path: Path) -> None:
    source = tmp_path / "source" / "journal.db"
    source.parent.mkdir()
    target = tmp_path / "journal.db"
    with SqliteStore.open(source) as store:
        mine = b.begin(store, 30)
        for unit in range(30):
            store.commit(mine, [b.reserved(unit)])
            store.commit(mine, [b.finished(unit)])
        base, wal = source.read_bytes(), source.with_name("journal.db-wal").read_bytes()
    last = -1
    for cut in range(len(wal) // 2, len(wal) + 1, 9_973):
        _fresh(target, base)
        target.with_name("journal.db-wal").write_bytes(wal[:cut])
        with SqliteStore.open(target) as store:
            units = list(store.units(b.RUN))
            done = sum(unit.state == "completed" for unit in units)
            assert [unit.state for unit in units[:done]] == ["completed"] * done
            assert done >= last
            assert store._db.raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)  # noqa: SLF001
            last = done
    assert last >= 15


def test_a_journal_that_cannot_grow_is_full_and_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with SqliteStore.open(path) as store:
        mine = b.begin(store, 10)
        raw = store._db.raw  # noqa: SLF001 - the limit that stands for a full disk
        pages = raw.execute("PRAGMA page_count").fetchone()[0]
        raw.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError) as caught:
            store.commit(mine, [b.started(2_000, first=10, round_=2)])
        assert (caught.value.code, str(caught.value)) == ("journal-full", f"no space left to write {path}")
        assert store.steps(b.RUN)[0].round == 1
        raw.execute(f"PRAGMA max_page_count = {pages * 100}")
        assert not store.commit(mine, [b.started(2_000, first=10, round_=2)]).lost


def on_a_small_disk(tmp_path: Path, work: Callable[[Path], str]) -> str:
    """Run `work` in a child that may write files of 300 KB at most."""

    def limited() -> str:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        return work(tmp_path)

    return in_a_child(limited)


def _fill_rows(folder: Path) -> str:
    with SqliteStore.open(folder / "journal.db") as store:
        mine = b.begin(store, 10)
        try:
            store.commit(mine, [b.started(5_000, first=10, round_=2)])
        except StoreError as error:
            return f"{error.code} {len(list(store.units(b.RUN)))}"
        return "written"


def _fill_artifact(folder: Path) -> str:
    with SqliteStore.open(folder / "journal.db") as store:
        mine = b.begin(store, 0)
        try:
            store.commit(mine, [b.completed(b'"' + b"x" * 400_000 + b'"')])
        except StoreError as error:
            left = [entry.name for entry in (folder / "artifacts").iterdir()]
            return f"{error.code} {store.steps(b.RUN)[0].state} {left}"
        return "written"


def test_a_disk_that_is_full_loses_the_batch_and_nothing_else(tmp_path: Path) -> None:
    assert on_a_small_disk(tmp_path, _fill_rows) in ("journal-full 10", "journal-io 10")
    with SqliteStore.open(tmp_path / "journal.db") as store:
        assert not store.commit(b.lease(), [b.started(5_000, first=10, round_=2)]).lost


def test_an_artifact_that_does_not_fit_leaves_no_file_and_no_row(tmp_path: Path) -> None:
    assert on_a_small_disk(tmp_path, _fill_artifact) == "journal-full running []"


def test_a_killed_writer_leaves_whole_batches(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from interlock.store.sqlite import SqliteStore\n"
        "from tests.store import builders as b\n"
        "store = SqliteStore.open(Path(sys.argv[1]))\n"
        "mine = b.begin(store, 20000)\n"
        "print('go', flush=True)\n"
        "for n in range(0, 20000, 4):\n"
        "    store.commit(mine, [b.reserved(n + i) for i in range(4)] + [b.finished(n + i) for i in range(3)])\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    with subprocess.Popen([sys.executable, "-c", code, str(path)], env=env, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"go\n"
        with SqliteStore.open(path, read_only=True) as reader:
            while len(reader.load(b.RUN).open) < 50:
                assert child.poll() is None
        child.kill()
    with SqliteStore.open(path) as store:
        counts = store.census(b.RUN)[0].by_state
        assert counts["completed"] == 3 * counts["running"]
        assert len(store.load(b.RUN).open) == counts["running"]
        assert store._db.raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)  # noqa: SLF001


def test_values_that_cannot_be_stored_are_named_not_crashed_on(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "journal.db") as store:
        mine = b.begin(store, 2)
        store.commit(mine, [b.reserved(0), b.reserved(1)])
        for bad in (b.failed(0, error="\ud800"), b.finished(0, exit_code=1 << 70)):
            with pytest.raises(StoreError) as caught:
                store.commit(mine, [bad])
            assert caught.value.code == "bad-row"
        assert not store.commit(mine, [b.finished(1)]).refused


def test_a_copy_of_a_live_journal_is_never_half_a_batch(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with SqliteStore.open(path) as store:
        b.begin(store, 3)
        shutil.copyfile(path, tmp_path / "copy.db")
        with pytest.raises(StoreError):
            read_all(tmp_path / "copy.db", read_only=True)
