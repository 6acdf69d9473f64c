from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.store import builders as b
from tests.store.disks import on_a_small_disk

from interlock.errors import JournalCorruptError, StoreError
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.events import Event, LogSpan, Usage
from interlock.store import connection, spool, sqlite, writes
from interlock.store.artifacts import Artifacts
from interlock.store.faults import full
from interlock.store.spool import Spool
from interlock.store.sqlite import SqliteStore

BIG = b'"' + b"a" * 70_000 + b'"'
OLD_S = 1_000_000_000


def test_a_spool_gives_back_what_it_got(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    full = b.finished(1, usage=Usage(input_tokens=1), log=LogSpan(3, 4), process=b.PROCESS, result=b"\x00\xff")
    spool.append("r", [full])
    spool.append("r", [b.failed(2), b.waiting(3)])
    assert spool.read("r") == [full, b.failed(2), b.waiting(3)]
    assert spool.read("other") == []
    spool.remove("r")
    assert spool.read("r") == []
    spool.remove("r")


FULL = "No space left on device"
ENDS = """
from tests.store import builders as b
from interlock.store.spool import Spool

folder, kept = Path(sys.argv[1]), sys.argv[2] == "kept"
spool = Spool(folder / "spool")
if kept:
    spool.keep_room()
fill(folder)
for number in range(2):
    try:
        spool.append("r", [b.finished(number, result=b'"' + b"x" * 100_000 + b'"')])
    except OSError as error:
        print(os.strerror(error.errno))
print(len(spool.read("r")))
os.unlink(folder / "other")
spool.append("r", [b.finished(9)])
spool.keep_room()
print(len(spool.read("r")), (folder / "spool" / "room").stat().st_blocks * 512)
"""


def test_what_two_drivers_spool_at_once_is_kept_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, others = Spool(tmp_path / "spool"), Spool(tmp_path / "spool")
    mine.append("r", [b.finished(0)])
    whole_length = spool._whole_length  # noqa: SLF001 - asked when it has read, and will write

    def overtaken(text: bytes) -> int:
        monkeypatch.undo()
        others.append("r", [b.finished(1)])
        return whole_length(text)

    monkeypatch.setattr(spool, "_whole_length", overtaken)
    mine.append("r", [b.finished(2)])
    assert mine.read("r") == [b.finished(0), b.finished(1), b.finished(2)]


def test_ends_that_another_driver_spools_while_those_before_are_taken_are_not_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    slept: list[int] = []

    def while_it_slept(moment: str) -> None:
        if moment == "after" and not slept:
            with SqliteStore.open(path) as successor:
                slept.append(successor.take_spool(b.RUN))
                successor.spool(b.RUN, [b.finished(1)])

    with SqliteStore.open(path) as store:
        b.begin(store, 2)
        store.commit(b.lease(), [b.reserved(0), b.reserved(1)])
        store.spool(b.RUN, [b.finished(0)])
    with SqliteStore.open(path, on_commit=while_it_slept) as late:
        assert late.take_spool(b.RUN) == 2
        assert slept == [0], "the late one was before the other in the journal, and behind it in the spool"
        assert [unit.state for unit in late.units(b.RUN)] == ["completed", "completed"]
        assert late.take_spool(b.RUN) == 0
    assert not (tmp_path / "spool" / f"{b.RUN}.jsonl").exists()


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ("kept", [FULL, "2", "3 1048576"]),
        ("none", [FULL, FULL, FULL, "0", "1 1048576"]),
    ],
)
def test_a_disk_that_filled_up_still_takes_ends_where_room_was_kept(tmp_path: Path, kept: str, said: list[str]) -> None:
    assert on_a_small_disk(tmp_path, "3m", ENDS, kept) == said


def test_a_journal_that_finds_no_room_takes_that_which_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    with SqliteStore.open(path) as store:
        store.take_spool("r")
    room = tmp_path / "spool" / "room"
    assert room.stat().st_size == 1_048_576
    opened = connection.open_file

    def on_a_full_disk(*args: Any, **settings: Any) -> Any:
        if room.exists():
            raise full(path)
        return opened(*args, **settings)

    monkeypatch.setattr(sqlite, "open_file", on_a_full_disk)
    SqliteStore.open(path).close()
    assert not room.exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(cut=st.integers(min_value=0, max_value=10_000))
def test_a_spool_cut_anywhere_loses_only_the_torn_line(tmp_path: Path, cut: int) -> None:
    spool = Spool(tmp_path)
    spool.remove("r")
    ends = [b.finished(n) for n in range(4)]
    spool.append("r", ends)
    path = spool.path("r")
    text = path.read_bytes()
    kept = text[: cut % (len(text) + 1)]
    path.write_bytes(kept)
    assert spool.read("r") == ends[: kept.count(b"\n")]
    spool.append("r", [b.finished(9)])
    assert spool.read("r") == [*ends[: kept.count(b"\n")], b.finished(9)]


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_damaged_spool_line_is_an_error(tmp_path: Path, line: int) -> None:
    spool = Spool(tmp_path)
    spool.append("r", [b.finished(n) for n in range(3)])
    lines = spool.path("r").read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b"d0.", b"dX.")
    spool.path("r").write_bytes(b"".join(lines))
    with pytest.raises(JournalCorruptError) as caught:
        spool.read("r")
    assert str(caught.value) == f"line {line + 1} of {spool.path('r')} is damaged"


def test_a_run_id_never_leaves_the_spool_folder(tmp_path: Path) -> None:
    assert Spool(tmp_path).path("../../x").parent == tmp_path


def test_an_artifact_file_is_checked_when_read(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path / "artifacts")
    tagged = canon.sha256(BIG)
    artifacts.put(tagged, BIG)
    artifacts.put(tagged, BIG)
    assert [entry.name for entry in (tmp_path / "artifacts").iterdir()] == [tagged.replace(":", "-")]
    assert artifacts.get(tagged) == BIG
    artifacts.path(tagged).write_bytes(BIG[:-2] + b'b"')
    with pytest.raises(JournalCorruptError, match="does not match its name"):
        artifacts.get(tagged)
    artifacts.path(tagged).unlink()
    with pytest.raises(JournalCorruptError, match="is missing"):
        artifacts.get(tagged)


@pytest.mark.parametrize("damaged", [BIG[:-2] + b'b"', BIG[:-1], BIG + b" ", b""])
def test_a_damaged_artifact_file_is_replaced_when_its_content_is_put_again(tmp_path: Path, damaged: bytes) -> None:
    artifacts = Artifacts(tmp_path / "artifacts")
    tagged = canon.sha256(BIG)
    artifacts.put(tagged, BIG)
    whole = artifacts.path(tagged).stat()
    artifacts.path(tagged).write_bytes(damaged)
    artifacts.put(tagged, BIG)
    assert artifacts.get(tagged) == BIG
    # put aside and renamed: who reads meanwhile sees one or the other
    assert artifacts.path(tagged).stat().st_ino != whole.st_ino
    assert [entry.name for entry in (tmp_path / "artifacts").iterdir()] == [tagged.replace(":", "-")]


def test_an_artifact_that_cannot_be_read_is_told_with_its_step_and_what_makes_it_anew(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "journal.db") as store:
        mine = b.begin(store, 0)
        store.commit(mine, [b.completed(BIG)])
        path = Artifacts(tmp_path / "artifacts").path(canon.sha256(BIG))
        hint = "restore the file from a backup, or start anew: interlock run w.md"
        path.write_bytes(BIG[:-2] + b'b"')
        for read in (lambda: store.artifact(b.RUN, 0), lambda: store.load(b.RUN)):
            with pytest.raises(JournalCorruptError) as caught:
                read()
            told = f"step 's0' of run {b.RUN}: the artifact file {path} does not match its name"
            assert (str(caught.value), caught.value.hint) == (told, hint)
        path.unlink()
        with pytest.raises(JournalCorruptError) as caught:
            store.load(b.RUN)
        assert str(caught.value) == f"step 's0' of run {b.RUN}: the artifact file {path} is missing"


def test_an_artifact_that_is_swept_before_the_row_that_names_it_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Artifacts(tmp_path / "artifacts").path(canon.sha256(BIG))
    put = SqliteStore._put_artifacts  # noqa: SLF001 - between it and the transaction a machine may sleep for hours

    def asleep(store: SqliteStore, parts: Any) -> Any:
        large = put(store, parts)
        os.utime(path, (OLD_S, OLD_S))
        with SqliteStore.open(tmp_path / "journal.db") as other:
            assert other.sweep_artifacts() == 1
        return large

    with SqliteStore.open(tmp_path / "journal.db") as store:
        mine = b.begin(store, 0)
        monkeypatch.setattr(SqliteStore, "_put_artifacts", asleep)
        store.commit(mine, [b.completed(BIG)])
        assert store.artifact(b.RUN, 0) == BIG


def test_only_old_artifact_files_that_no_step_names_are_swept(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "journal.db") as store:
        assert store.sweep_artifacts() == 0
        mine = b.begin(store, 0)
        store.commit(mine, [b.completed(BIG)])
        orphan, fresh = tmp_path / "artifacts" / "sha256-00", tmp_path / "artifacts" / ".part-x"
        orphan.touch()
        fresh.touch()
        named = Artifacts(tmp_path / "artifacts").path(canon.sha256(BIG))
        for old in (orphan, named):
            os.utime(old, (OLD_S, OLD_S))
        assert (store.sweep_artifacts(dry_run=True), orphan.exists()) == (1, True)
        assert store.sweep_artifacts() == 1
        assert (orphan.exists(), fresh.exists(), named.exists()) == (False, True, True)
        b.finish_run(store, mine)
        store.release(mine)
        store.delete_run(b.RUN)
        assert store.referenced_artifacts() == frozenset()
        assert store.sweep_artifacts() == 1
        assert not named.exists()


def test_an_artifact_that_is_used_again_is_young_again(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    tagged = canon.sha256(BIG)
    artifacts.put(tagged, BIG)
    os.utime(artifacts.path(tagged), (OLD_S, OLD_S))
    artifacts.put(tagged, BIG)
    assert artifacts.sweep([]) == 0


class Stranger(ev.Notice, frozen=True, kw_only=True):
    """Of a later version."""


def test_every_event_of_the_vocabulary_has_a_place_in_the_journal() -> None:
    assert set(writes._WRITERS) == set(get_args(Event))  # noqa: SLF001 - the table of places


def test_an_event_without_a_place_in_the_journal_is_refused_not_dropped(tmp_path: Path) -> None:
    with SqliteStore.in_memory(tmp_path) as store:
        mine = b.begin(store)
        store.commit(mine, [b.reserved(0)])
        with pytest.raises(StoreError) as caught:
            store.commit(mine, [b.finished(0), Stranger(at=1, code="c", text="t")])
        assert str(caught.value) == "this journal cannot record the event Stranger"
        assert [unit.state for unit in store.units(b.RUN)] == ["completed"]
