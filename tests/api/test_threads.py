"""One App in several threads, and an App whose time is over."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest

import interlock
from interlock.driver.export.exporting import export_run
from interlock.errors import InterlockError


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "flow.md").write_text("---\nsteps: [{ id: a, run: 'true' }]\n---\n", encoding="utf-8")
    (tmp_path / "interlock.toml").touch()
    return tmp_path


def told(call: Callable[[], Any]) -> tuple[str, str, str]:
    with pytest.raises(InterlockError) as caught:
        call()
    return caught.value.code, caught.value.message, caught.value.hint


def elsewhere(call: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def journals() -> list[str]:
    """Open files of a journal; not what came and went while one looked."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except FileNotFoundError:
            continue
    return [name for name in found if "journal.db" in name]


def test_threads_that_share_an_app_run_and_read_side_by_side(place: Path) -> None:
    together = Barrier(3)

    def go(app: interlock.App) -> str:
        together.wait(timeout=30)
        result = app.run_file(place / "flow.md")
        return app.store.run(result.run_id).state

    before = journals()
    with interlock.open(place) as app:
        first = app.run_file(place / "flow.md").run_id
        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(go, [app] * 3)) == ["completed"] * 3
        assert elsewhere(lambda: app.find(first)) == first
        assert len(app.store.runs()) == 4
    assert journals() == before


def test_an_app_is_closed_by_whichever_thread(place: Path) -> None:
    before = journals()
    app = interlock.open(place)
    elsewhere(lambda: app.run_file(place / "flow.md"))
    assert journals() == before, "a thread's end closes what it had open"
    app.run_file(place / "flow.md")
    elsewhere(app.close)
    app.close()
    gc.collect()
    assert journals() == before


def test_closing_in_one_thread_leaves_another_its_run(place: Path) -> None:
    begun, closed = Event(), Event()

    def hold(_events: object, _snap: object) -> None:
        begun.set()
        assert closed.wait(timeout=30)

    app = interlock.open(place)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: app.run_file(place / "flow.md", on_event=hold))
        assert begun.wait(timeout=30)
        app.close()
        closed.set()
        assert running.result().state == "completed"
    app.close()


def test_a_journal_taken_to_another_thread_or_used_when_closed_is_told_with_a_next_step(place: Path) -> None:
    app = interlock.open(place)
    app.run_file(place / "flow.md")
    store, journal = app.store, place / ".interlock" / "journal.db"
    assert told(lambda: elsewhere(store.runs)) == (
        "journal-of-another-thread",
        f"the journal {journal} was opened by another thread",
        "take `store` from the App anew in each thread",
    )
    app.close()
    assert told(store.runs) == (
        "journal-closed",
        f"the journal {journal} was closed while it was in use",
        "open the project again: interlock.open(FOLDER)",
    )
    assert len(app.store.runs()) == 1, "an App opens its journal again"
    app.close()


def test_an_export_is_read_in_another_thread_and_not_when_closed(place: Path) -> None:
    file = place / "run.export.gz"
    with interlock.open(place) as app:
        run_id = app.run_file(place / "flow.md").run_id
        with file.open("wb") as out:
            export_run(app.project.journal, app.project.logs, run_id, out)
    export = interlock.open_export(file)
    assert elsewhere(lambda: export.find("last")) == run_id
    assert elsewhere(lambda: export.store.run(run_id).state) == "completed"
    elsewhere(export.close)
    closed = ("export-closed", f"the export {file} was closed", "open it again: interlock.open_export(FILE)")
    assert told(lambda: export.store) == closed
    export.close()
