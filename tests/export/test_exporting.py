"""What an export holds, and that it is written whole, once, from one view of the journal."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.export.files import PLAN, done_run, export, journal, lines_of, new_run, say
from tests.store import builders as b

from interlock.driver.export import exporting
from interlock.driver.export.exporting import export_run
from interlock.driver.export.importing import open_export, verify_export
from interlock.errors import JournalCorruptError, PlanError, StoreError, UsageError
from interlock.model import canon
from interlock.model import events as ev
from interlock.store.births import Below
from interlock.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

GOLDEN = Path(__file__).parent / "golden"


def everything(store: object, run_id: str) -> tuple[object, ...]:
    """All that the store's reading verbs say of a run."""
    assert isinstance(store, SqliteStore)
    steps = store.steps(run_id)
    return (
        store.run(run_id),
        store.plan(run_id),
        store.read_lease(run_id),
        steps,
        [store.artifact(run_id, step.step) for step in steps],
        list(store.units(run_id)),
        [store.attempts(run_id, unit.step, unit.ordinal) for unit in store.units(run_id)],
        store.events(run_id, 0, 10_000),
        store.requests(run_id, open_only=False),
        store.approvals(run_id),
        store.notices(run_id),
        store.spent(run_id),
        store.load(run_id),
    )


def test_whatever_the_store_says_of_a_run_it_says_of_its_export(tmp_path: Path) -> None:
    from tests.store.golden import make  # noqa: PLC0415 - a script beside its files

    with SqliteStore.open(tmp_path / "journal.db") as store:
        make.fill(store)
        runs = [run.id for run in store.runs()]
        for n, run_id in enumerate(run.id for run in store.runs(children=True)):
            # its plan is no plan, and its hash no hash
            plan = f'{{"plan":{n}}}'.encode()
            values = (canon.sha256(plan), run_id)
            store._db.raw.execute("UPDATE run SET plan_hash = ? WHERE id = ?", values)  # noqa: SLF001 - see above
            text = "UPDATE run_plan SET json = ? WHERE run_seq = (SELECT seq FROM run WHERE id = ?)"
            store._db.raw.execute(text, (plan, run_id))  # noqa: SLF001 - as above
        for run_id in runs:
            path, _ = export(tmp_path / "journal.db", run_id)
            with open_export(path) as opened:
                assert [run.id for run in opened.store.runs()] == [run_id]
                before, after = everything(store, run_id), everything(opened.store, run_id)
                # guesses of what engines use come from the whole project
                assert before[:-1] == after[:-1]


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    path = journal(tmp_path)
    first = export(path)[0].read_bytes()
    assert export(path, to="again.gz")[0].read_bytes() == first


def test_artifacts_in_files_come_whole_and_lie_there_once(tmp_path: Path) -> None:
    text = json.dumps(["wörld" * 300_000], ensure_ascii=False).encode()
    with SqliteStore.open(tmp_path / "journal.db") as store:
        mine = new_run(store)
        child = b.new_child("20300102-r2", plan_json=PLAN, plan_hash=canon.sha256(PLAN))
        begun: list[ev.Event] = [b.started(1), b.reserved(0), b.finished(0, result=b'"ok"'), b.completed(text)]
        store.commit(mine, begun, [Below(run_id=child.id, events=begun, new=child)])
    path, _ = export(tmp_path / "journal.db")
    pieces = [json.loads(line)["data"] for line in lines_of(path) if b'"kind":"artifact"' in line]
    assert len(pieces) > 3
    assert "".join(piece["text"] for piece in pieces).encode() == text
    with open_export(path) as opened:
        assert opened.store.artifact("20300102-r2", 0) == text
        assert opened.store.artifact(b.RUN, 0) == text


def test_an_artifact_that_is_gone_or_changed_leaves_no_file(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "journal.db") as store:
        done_run(store, artifact=b'"' + b"x" * 100_000 + b'"')
    (file,) = (tmp_path / "artifacts").iterdir()
    for damage in (lambda: file.write_bytes(b"other"), file.unlink):
        damage()
        with pytest.raises(JournalCorruptError, match=str(file)):
            export(tmp_path / "journal.db")
    assert list(tmp_path.glob("*run.export*")) == []


def test_a_damaged_plan_leaves_no_file(tmp_path: Path) -> None:
    path = journal(tmp_path)
    with SqliteStore.open(path) as store:
        store._db.raw.execute("UPDATE run_plan SET json = x'7b7d'")  # noqa: SLF001 - damage
    with pytest.raises(PlanError, match=f"plan of run {b.RUN} does not match its hash; nothing was exported"):
        export(path)
    assert list(tmp_path.glob("*run.export*")) == []


def test_logs_keep_their_places_and_bytes(tmp_path: Path) -> None:
    path = journal(tmp_path)
    say(tmp_path, b.RUN, b"later\n", b"x" * 200_000)
    exported, _ = export(path)
    with open_export(exported) as opened:
        assert (opened.project.logs / f"{b.RUN}.log").read_bytes() == (tmp_path / "logs" / f"{b.RUN}.log").read_bytes()


@pytest.mark.parametrize("cut", [b"", b'{"s":"out","d":"x","n":10,"c":0,"t":1}\nhalf', b"\0garbage\n" * 20_000])
def test_a_log_that_a_crash_cut_or_that_is_damaged_comes_as_it_is(tmp_path: Path, cut: bytes) -> None:
    path = journal(tmp_path)
    log = tmp_path / "logs" / f"{b.RUN}.log"
    log.write_bytes(log.read_bytes() + cut)
    exported, _ = export(path)
    with open_export(exported) as opened:
        assert (opened.project.logs / f"{b.RUN}.log").read_bytes() == log.read_bytes()


def test_child_runs_come_along_and_strangers_do_not(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "journal.db") as store:
        done_run(store)
        done_run(store, "20300101-other")
        done_run(store, "20300101-child", parent=b.RUN, parent_unit="s0:w0", root=b.RUN)
        done_run(store, "20300101-grandchild", parent="20300101-child", parent_unit="s0:w0", root=b.RUN)
    say(tmp_path, "20300101-grandchild", b"deep\n")
    path, done = export(tmp_path / "journal.db")
    assert done.runs == (b.RUN, "20300101-child", "20300101-grandchild")
    with open_export(path) as opened:
        assert {run.id for run in opened.store.runs(children=True)} == set(done.runs)
        assert opened.store.run("20300101-grandchild").parent == "20300101-child"
        assert b"deep" in (opened.project.logs / "20300101-grandchild.log").read_bytes()


def test_columns_and_tables_that_others_added_travel_along(tmp_path: Path) -> None:
    path = journal(tmp_path)
    with SqliteStore.open(path) as store:
        raw = store._db.raw  # noqa: SLF001 - another version's journal
        raw.execute("ALTER TABLE attempt ADD COLUMN mood TEXT")
        raw.execute("UPDATE attempt SET mood = 'good'")
        raw.execute("CREATE TABLE weather (run_seq INTEGER, day INTEGER, sky TEXT, PRIMARY KEY (run_seq, day)) STRICT")
        raw.executemany("INSERT INTO weather VALUES (1, ?, ?)", [(2, "grey"), (1, "blue")])
    lines = [json.loads(line)["data"] for line in lines_of(export(path)[0])]
    rows = [(line["table"], line["row"]) for line in lines if "row" in line]
    assert [row for table, row in rows if table == "weather"] == [{"day": 1, "sky": "blue"}, {"day": 2, "sky": "grey"}]
    assert [row["mood"] for table, row in rows if table == "attempt"] == ["good"]
    said = "a column 'mood' of 'attempt', which this interlock does not know"
    with pytest.raises(StoreError, match=said), open_export(tmp_path / "run.export.gz"):
        pass


class Busy(io.BytesIO):
    """Lets the run's driver go on at every write."""

    def __init__(self, store: SqliteStore) -> None:
        super().__init__()
        self._store = store
        self.commits = 0

    def write(self, data: ReadableBuffer) -> int:
        if self.commits < 50:
            event = ev.Notice(at=61, code=f"n{self.commits}", text="t")
            assert self._store.commit(b.lease(), [event]).refused == ()
            self.commits += 1
        return super().write(data)


def test_a_run_that_is_being_driven_is_exported_as_it_was_at_one_moment(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "journal.db") as store:
        mine = new_run(store)
        store.commit(mine, [b.started(2000), *(b.reserved(unit) for unit in range(2000))])
        before = len(store.events(b.RUN, 0, 10_000))
        out = Busy(store)
        export_run(tmp_path / "journal.db", tmp_path / "logs", b.RUN, out)
        assert out.commits > 10
        assert len(store.events(b.RUN, 0, 10_000)) > before
    (tmp_path / "live.gz").write_bytes(out.getvalue())
    with open_export(tmp_path / "live.gz") as opened:
        assert len(opened.store.events(b.RUN, 0, 10_000)) == before
        assert opened.store.notices(b.RUN) == frozenset()
        assert len(list(opened.store.units(b.RUN, state="running"))) == 2000


def test_nothing_can_be_written_into_what_was_opened(tmp_path: Path) -> None:
    exported, _ = export(journal(tmp_path))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with open_export(exported) as opened:
        folder = opened.project.root
        with pytest.raises(StoreError):
            opened.store.request(b.RUN, "abandon", b"{}", "me", 1)
    assert not folder.exists()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_file_that_is_there_is_replaced_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "run.gz"
    path.write_bytes(b"mine")
    with pytest.raises(UsageError, match="is there already"), exporting.new_file(path, force=False):
        pass
    with exporting.new_file(path, force=True) as out:
        out.write(b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.gz"]


def test_a_file_that_turns_up_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.gz"
    with pytest.raises(UsageError, match="is there already"), exporting.new_file(path, force=False):
        path.write_bytes(b"somebody was faster")
    assert path.read_bytes() == b"somebody was faster"
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.gz"]


def test_a_folder_that_is_not_there_and_one_in_the_way_are_told(tmp_path: Path) -> None:
    said = r"can't write .*/none/x: no such file or directory; no file was left"
    with pytest.raises(StoreError, match=said), exporting.new_file(tmp_path / "none" / "x", force=False):
        pass
    with pytest.raises(UsageError, match="is a folder"), exporting.new_file(tmp_path, force=True):
        pass


def test_a_pipe_or_a_device_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="is no regular file"), exporting.new_file(pipe, force=True):
        raise AssertionError
    assert pipe.is_fifo()


def test_a_full_disk_is_told_and_leaves_no_half_file(tmp_path: Path) -> None:
    path = journal(tmp_path)
    say(tmp_path, b.RUN, os.urandom(90_000))
    # at 64 KiB the file hits the limit that the system sets this process, as it would the end of a disk
    code = (
        "import resource, sys; from pathlib import Path; from interlock.driver.export import exporting as e\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n"
        "try:\n"
        "    with e.new_file(Path(sys.argv[2]), force=False) as out:\n"
        "        e.export_run(Path(sys.argv[1]), Path(sys.argv[3]), sys.argv[4], out)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    target = tmp_path / "out" / "run.gz"
    target.parent.mkdir()
    arguments = [sys.executable, "-c", code, str(path), str(target), str(tmp_path / "logs"), b.RUN]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == f"StoreError can't write {target}: file too large; no file was left\n", done.stderr
    assert list(target.parent.iterdir()) == []


def test_an_export_of_format_1_still_loads() -> None:
    """Made by `tests/export/golden/make.py`; the files of released formats are kept for ever."""
    path = GOLDEN / "export-v1.gz"
    assert verify_export(path).header.format == 1
    with open_export(path) as opened:
        assert [run.state for run in opened.store.runs()] == ["completed"]
        assert opened.store.artifact(b.RUN, 0) == b'["ok"]'
        assert [unit.result for unit in opened.store.units(b.RUN)] == [b'"ok"']
        assert (opened.project.logs / f"{b.RUN}.log").stat().st_size > 0
