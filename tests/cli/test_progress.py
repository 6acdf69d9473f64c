"""Live progress: what is shown, and that no reader can hold up or end a run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

import msgspec
import pytest

from interlock.cli.progress.feed import Change, Feed
from interlock.cli.progress.ndjson import NdjsonRenderer
from interlock.cli.progress.plain import PlainRenderer
from interlock.model import events as ev
from interlock.model.run import Snapshot
from interlock.model.states import AttemptState, Reason, StepState, UnitState


def new_unit(ordinal: int, unit_id: str, index: int | None = None) -> ev.NewUnit:
    return ev.NewUnit(ordinal, unit_id, index, None if index is None else str(index).encode(), "h")


STARTED = ev.StepStarted(at=0, step=0, round=1, loop=1, units=(new_unit(0, "one:solo"),))
MANY = ev.StepStarted(at=0, step=1, round=1, loop=1, units=tuple(new_unit(i, f"many:{i}", i) for i in range(20)))


def finished(step: int, unit: int, state: UnitState = UnitState.COMPLETED, error: str = "") -> ev.AttemptFinished:
    ended = AttemptState.COMPLETED if state is UnitState.COMPLETED else AttemptState.FAILED
    reason = None if state is UnitState.COMPLETED else Reason.TIMEOUT
    return ev.AttemptFinished(
        at=0, step=step, unit=unit, number=1, dispatch="d", state=ended, unit_state=state, reason=reason, error=error
    )


def drive(renderer: PlainRenderer, snapshot: Snapshot, *events: ev.Event) -> None:
    for event in events:
        snapshot.apply(event)
        renderer.show([Change([event], snapshot)], snapshot, 0)


def test_plain_lines_tell_of_steps_and_of_failing_units_with_their_reason(snapshot: Snapshot) -> None:
    lines: list[str] = []
    renderer = PlainRenderer(lambda line, _tone: lines.append(line), clock=lambda: 0.0)
    renderer.begin(snapshot, 0)
    drive(
        renderer,
        snapshot,
        STARTED,
        finished(0, 0),
        ev.StepMoved(at=0, step=0, state=StepState.COMPLETED),
        MANY,
        finished(1, 3, UnitState.WAITING),
        finished(1, 4, UnitState.FAILED, error="took\x1b[31m too long"),
        ev.StepMoved(at=0, step=1, state=StepState.FAILED, reason="timeout", detail="1 unit failed"),
        ev.StepMoved(at=0, step=2, state=StepState.SKIPPED, reason="not_chosen"),
    )
    assert "".join(lines) == (
        "run 01JDRUN of flow.md\n"
        "step one started\n"
        "step one completed after 0 ms\n"
        "step many started with 20 units\n"
        "unit many:3, item 3, will be tried again (timeout)\n"
        "unit many:4, item 4, failed (timeout): took\\x1b[31m too long\n"
        "step many failed (timeout) after 0 ms (0/20 completed, 1 failed)\n"
        "step way skipped (not_chosen)\n"
    )


def test_a_step_that_went_on_without_its_only_unit_is_no_plain_success_and_one_that_is_gated_anew_starts_nothing(
    snapshot: Snapshot,
) -> None:
    lines: list[str] = []
    renderer = PlainRenderer(lambda line, _tone: lines.append(line), clock=lambda: 0.0)
    drive(
        renderer,
        snapshot,
        STARTED,
        finished(0, 0, UnitState.FAILED),
        ev.StepMoved(at=0, step=0, state=StepState.COMPLETED),
        MANY,
        ev.StepStarted(at=0, step=1, round=2, loop=1, units=()),
    )
    assert lines == [
        "step one started\n",
        "unit one:solo failed (timeout)\n",
        "step one completed after 0 ms (0/1 completed, 1 failed)\n",
        "step many started with 20 units\n",
        "step many reopened, its work stands (round 2)\n",
    ]


def test_of_a_unit_that_was_stopped_nobody_says_that_it_is_tried_again(snapshot: Snapshot) -> None:
    lines: list[str] = []
    stopped = msgspec.structs.replace(
        finished(1, 3, UnitState.PENDING, error="called back before it began"),
        state=AttemptState.ABORTED,
        reason=Reason.ABORTED,
    )
    drive(PlainRenderer(lambda line, _tone: lines.append(line)), snapshot, MANY, stopped)
    assert lines[-1] == "unit many:3, item 3, was stopped (aborted): called back before it began\n"


def test_a_unit_that_its_step_no_longer_waits_for_is_not_said_to_be_tried_again(snapshot: Snapshot) -> None:
    lines: list[str] = []
    renderer = PlainRenderer(lambda line, _tone: lines.append(line))
    events: list[ev.Event] = [
        MANY,
        ev.AttemptReserved(at=0, step=1, unit=3, number=1, dispatch="d"),
        finished(1, 3, UnitState.WAITING),
        ev.UnitsStopped(at=0, step=1, reason="stopped"),
    ]
    for event in events:
        snapshot.apply(event)
    renderer.show([Change(events, snapshot)], snapshot, 0)
    assert lines[-1] == "unit many:3, item 3, is not tried again (timeout)\n"


def test_a_thousand_failing_units_are_counted_not_listed(snapshot: Snapshot) -> None:
    lines: list[str] = []
    drive(
        PlainRenderer(lambda line, _tone: lines.append(line)),
        snapshot,
        MANY,
        *(finished(1, i, UnitState.FAILED) for i in range(20)),
    )
    assert len(lines) == 12
    assert lines[-1] == "step many: further failing units are counted, not shown\n"


def test_silence_is_broken_twice_a_minute(snapshot: Snapshot) -> None:
    lines: list[str] = []
    now = 0.0
    renderer = PlainRenderer(lambda line, _tone: lines.append(line), clock=lambda: now)
    drive(renderer, snapshot, MANY, finished(1, 0))
    for second in range(1, 61):
        now = float(second)
        renderer.show([], snapshot, 0)
    assert lines[1:] == [
        "still running after 30.0 s: many 1/20 completed\n",
        "still running after 1 min 0 s: many 1/20 completed\n",
    ]


def test_ndjson_is_one_event_a_line_with_ids(snapshot: Snapshot) -> None:
    written: list[bytes] = []
    renderer = NdjsonRenderer(written.append)
    renderer.begin(snapshot, 0)
    snapshot.apply(STARTED)
    snapshot.apply(finished(0, 0))
    renderer.show([Change([STARTED, finished(0, 0)], snapshot)], snapshot, 3)
    lines = [msgspec.json.decode(line) for line in b"".join(written).splitlines()]
    assert [line["type"] for line in lines] == ["run_driven", "step_started", "attempt_finished", "events_dropped"]
    assert lines[2]["unit"] == "one:solo"
    assert lines[3]["count"] == 3
    assert all(line["schema"] == 1 for line in lines)


class Stalled:
    """A renderer whose reader has stopped reading."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.reading = threading.Event()
        self.dropped = 0

    def begin(self, snapshot: Snapshot, ended: int) -> None:
        del snapshot, ended
        self.entered.set()
        assert self.reading.wait(30)

    def show(self, changes: Sequence[Change], snapshot: Snapshot, dropped: int) -> None:
        del changes, snapshot
        self.dropped += dropped

    def end(self) -> None:
        pass


def test_a_stalled_reader_never_holds_the_loop_up_and_is_told_what_it_missed(snapshot: Snapshot) -> None:
    stalled = Stalled()
    feed = Feed(lambda: stalled, most_events=10)
    feed([STARTED], snapshot)
    assert stalled.entered.wait(30)
    began = time.monotonic()
    for _ in range(1000):
        feed([STARTED], snapshot)
    assert time.monotonic() - began < 5
    stalled.reading.set()
    feed.close()
    assert stalled.dropped == 990


def test_a_reader_that_closed_its_end_does_not_end_the_run(snapshot: Snapshot) -> None:
    reader, writer = os.pipe()
    os.close(reader)

    def write(data: bytes) -> None:
        os.write(writer, data)

    try:
        feed = Feed(lambda: NdjsonRenderer(write))
        feed([STARTED], snapshot)
        feed([STARTED], snapshot)
        feed.close()
    finally:
        os.close(writer)


def test_a_fault_in_a_renderer_is_not_swallowed(snapshot: Snapshot) -> None:
    class Faulty(Stalled):
        def begin(self, snapshot: Snapshot, ended: int) -> None:
            del snapshot, ended
            raise ValueError("planted")

    feed = Feed(Faulty)
    feed([STARTED], snapshot)
    with pytest.raises(ValueError, match="planted"):
        feed.close()


def test_a_run_that_never_began_shows_nothing() -> None:
    def never() -> Stalled:
        raise AssertionError("no renderer is needed")

    Feed(never).close()
