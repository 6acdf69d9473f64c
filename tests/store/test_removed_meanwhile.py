"""A run that `gc` removes while it is read is not found: it is never half of one, nor damaged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.store import builders as b

from interlock.errors import StoreError
from interlock.model.states import RunState
from interlock.store.artifacts import Artifacts
from interlock.store.reads import Reader
from interlock.store.sqlite import SqliteStore

BIG = b'"' + b"a" * 70_000 + b'"'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.open(tmp_path / "journal.db") as store:
        mine = b.begin(store)
        store.commit(mine, [b.reserved(0), b.finished(0), b.completed(BIG)])
        store.commit(mine, [b.run_moved(RunState.COMPLETED, outcome="ok")])
        store.release(mine)
        yield store


def remove(path: Path) -> None:
    with SqliteStore.open(path) as other:
        other.delete_run(b.RUN)
        for file in (path.parent / "artifacts").iterdir():
            # a young one is spared
            os.utime(file, (0, 0))
        other.sweep_artifacts()


READS: dict[str, Callable[[SqliteStore], Any]] = {
    "run": lambda store: store.run(b.RUN),
    "plan": lambda store: store.plan(b.RUN),
    "steps": lambda store: store.steps(b.RUN),
    "census": lambda store: store.census(b.RUN),
    "attempts": lambda store: store.attempts(b.RUN, 0, 0),
    "events": lambda store: store.events(b.RUN),
    "requests": lambda store: store.requests(b.RUN),
    "children": lambda store: store.children(b.RUN),
    "spent": lambda store: store.spent(b.RUN),
}


@pytest.mark.parametrize("verb", READS)
def test_what_is_read_of_a_run_that_is_removed_at_that_moment_is_all_there(
    store: SqliteStore, tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = READS[verb](store)
    number = Reader._seq  # noqa: SLF001 - the first of two reads

    def then_removed(reader: Reader, run_id: str) -> int:
        found = number(reader, run_id)
        monkeypatch.undo()
        remove(tmp_path / "journal.db")
        return found

    monkeypatch.setattr(Reader, "_seq", then_removed)
    assert READS[verb](store) == whole
    with pytest.raises(StoreError) as caught:
        READS[verb](store)
    assert caught.value.code == "run-not-found"


def test_an_artifact_whose_run_was_removed_is_not_damaged(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.artifact(b.RUN, 0) == BIG
    get = Artifacts.get

    def then_removed(artifacts: Artifacts, tagged: str) -> bytes:
        monkeypatch.undo()
        remove(tmp_path / "journal.db")
        return get(artifacts, tagged)

    monkeypatch.setattr(Artifacts, "get", then_removed)
    with pytest.raises(StoreError) as caught:
        store.artifact(b.RUN, 0)
    assert caught.value.code == "run-not-found"
