"""What is read of a run that goes on meanwhile is of one moment: no step without its units, no unit without its step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.driver.desk import RUN, Desk, real_plan
from tests.store import builders as b

from interlock.app import App
from interlock.cli.reading import read_run
from interlock.driver.forking import Old
from interlock.driver.lease import lost_error
from interlock.driver.project import project_at
from interlock.driver.replay.recording import read_recording
from interlock.model import events as ev
from interlock.model.states import RunState, StepState
from interlock.plan.config import Config
from interlock.store.sqlite import SqliteStore
from interlock.testing.build import step


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Give a run of one step in the place where a project's journal lies."""
    folder = tmp_path / ".interlock"
    folder.mkdir()
    made = Desk(folder, real_plan(tmp_path, step("a")))
    yield made
    made.close()


class Overtaking:
    """A journal whose run is driven on while it is read: after the first read of something, and before the next."""

    def __init__(self, desk: Desk, events: list[ev.Event]) -> None:
        self._desk = desk
        self._events = events
        self._reading = SqliteStore.open(desk.path, read_only=True)

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._reading, name)
        if name in ("view", "close"):
            return verb

        def read(*args: Any, **options: Any) -> Any:
            found = verb(*args, **options)
            if self._events:
                held = self._desk.store.read_lease(RUN)
                lease = self._desk.take_over() if held is not None and held.released else self._desk.lease
                assert not self._desk.store.commit(lease, self._events).lost
                self._events = []
            return found

        return read


BEGUN: list[ev.Event] = [b.started(1), b.reserved(0)]


def of_app(store: Any) -> tuple[StepState, int]:
    with pytest.MonkeyPatch.context() as patched, App(project_at(Path.cwd()), Config()) as app:
        patched.setattr(App, "store", store)
        snap, _ = app.snapshot(RUN)
    return snap.steps[0].state, len(snap.steps[0].units)


def of_fork(store: Any) -> tuple[StepState, int]:
    snap = Old(store, RUN).snap
    return snap.steps[0].state, len(snap.steps[0].units)


@pytest.mark.parametrize("look", [of_app, of_fork])
def test_a_run_that_begins_while_it_is_read_has_begun_or_not(
    desk: Desk, look: Callable[[Any], tuple[StepState, int]]
) -> None:
    found = look(Overtaking(desk, [*BEGUN]))
    assert found in ((StepState.PENDING, 0), (StepState.RUNNING, 1))
    assert desk.units() == {"s:w0": "running"}


def test_a_run_that_ends_while_its_status_is_read_has_ended_or_not(desk: Desk) -> None:
    desk.store.commit(desk.lease, BEGUN)
    ended: list[ev.Event] = [b.finished(0), b.completed(), b.run_moved(RunState.COMPLETED, outcome="ok")]
    rows = read_run(Overtaking(desk, ended), RUN)
    assert (rows.run.state, rows.steps[0].state, rows.census[0].by_state) == ("active", "running", {"running": 1})
    assert desk.store.run(RUN).state == "completed"


def test_a_run_that_is_reopened_while_its_record_is_read_is_whole(desk: Desk) -> None:
    ended: list[ev.Event] = [
        b.failed(0),
        b.step_moved(StepState.FAILED, reason="step_failed"),
        b.run_moved(RunState.FAILED, reason="step_failed"),
    ]
    desk.store.commit(desk.lease, [*BEGUN, *ended])
    again: list[ev.Event] = [b.run_moved(RunState.ACTIVE), b.started(1, first=1, round_=2), b.reserved(1)]
    recording = read_recording(Overtaking(desk, again), RUN)
    assert (recording.run.state, len(recording.units)) == ("failed", 1)
    assert len(desk.units()) == 2


def test_who_lost_a_run_is_told_how_it_was_left_though_a_third_one_goes_on_with_it_meanwhile(desk: Desk) -> None:
    blocked = b.run_moved(RunState.BLOCKED, reason="approval_needed")
    desk.store.commit(desk.lease, [*BEGUN, b.finished(0), blocked])
    desk.store.release(desk.lease)
    error = lost_error(Overtaking(desk, [b.run_moved(RunState.ACTIVE)]), RUN)
    assert str(error).endswith(", which left it blocked")
    assert desk.store.run(RUN).state == "active"
