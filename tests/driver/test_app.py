from __future__ import annotations

from pathlib import Path

import pytest

import interlock
from interlock.driver.clock import SystemClock
from interlock.driver.lease import fresh, this_host
from interlock.errors import LeaseHeldError
from interlock.model import events as ev
from interlock.model.run import Lease
from interlock.store import connection
from interlock.store.sqlite import SqliteStore


def test_what_was_found_when_the_journal_was_opened_is_told_by_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flow.md").write_text("---\nsteps:\n  - { id: a, run: 'true' }\n---\n", encoding="utf-8")
    monkeypatch.setattr(connection, "mount_table", lambda: f"server:/x {tmp_path} nfs4 rw 0 0\n")
    told: list[str] = []
    with interlock.open(tmp_path) as app:
        app.run_file(
            tmp_path / "flow.md",
            on_event=lambda events, _snap: told.extend(e.text for e in events if isinstance(e, ev.Notice)),
        )
    (text,) = told
    assert text == (
        f"{tmp_path}/.interlock/journal.db lies on a network file system (nfs4): the journal uses a rollback journal "
        "instead of WAL"
    )


def test_a_childs_fault_is_told_once_when_its_folder_is_linted(tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    caller = "---\nsteps:\n  - { id: a, uses: ./child.md }\n---\n"
    for name in ("one.md", "two.md"):
        (flows / name).write_text(caller, encoding="utf-8")
    (flows / "child.md").write_text("---\nsteps:\n  - { id: a, run: 'true', env: [x] }\n---\n", encoding="utf-8")
    with interlock.open(tmp_path) as app:
        found = app.lint([flows])
    assert [(Path(d.file).name, d.code) for d in found] == [("child.md", "unknown-env")]


def test_who_lost_a_run_that_it_resumed_asks_nothing_of_who_took_it_over(tmp_path: Path) -> None:
    flow = tmp_path / "flow.md"
    flow.write_text(
        "---\nparams: { n: { type: array, default: [1, 2, 3] } }\nbudget: { max_units: 1 }\n"
        "steps:\n  - { id: a, map: { over: params.n, concurrency: 1 }, run: 'true' }\n---\n",
        encoding="utf-8",
    )
    with interlock.open(tmp_path) as app:
        run = app.run_file(flow).run_id
        taken: list[Lease] = []

        def take_over(_events: object, _snap: object) -> None:
            if not taken:
                held = other.read_lease(run)
                assert held is not None
                taken.append(fresh(run, held.term + 1, this_host(), SystemClock()))
                assert other.take_lease(taken[0], held)

        other = SqliteStore.open(app.project.journal)
        try:
            with pytest.raises(LeaseHeldError) as caught:
                app.resume(run, raises={"max_units": 9}, on_event=take_over)
        finally:
            other.close()
        assert caught.value.code == "lease-lost"
        assert str(caught.value).startswith(f"run {run} was taken over by pid {taken[0].pid} on ")
        assert app.store.requests(run, open_only=False) == []
