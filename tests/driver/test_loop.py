from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.driver.desk import RUN, Desk, all_well, real_plan

from interlock.decide.reopen import close_lost
from interlock.dispatch.base import EnvAudit, Report, Started
from interlock.driver.loop import Stop
from interlock.errors import DispatchRefusedError
from interlock.model import events as ev
from interlock.model.events import Process
from interlock.model.plan import Backoff, Command, PythonFunction, Retry
from interlock.model.states import AttemptState, Reason, RunState, UnitState
from interlock.testing.build import aborted, failed, ok, over, step

MAP = step("m", map=over("params.items", concurrency=2))


def test_an_attempt_is_in_the_journal_before_its_work_starts(desks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    desk: Desk = desks(MAP, step("n"))
    loop, hand = desk.sit(all_well)
    start = hand.start

    def watched(requests: list[Any]) -> None:
        journaled = {row[:2] for row in desk.attempts()}
        assert {(request.unit_id, request.attempt) for request in requests} <= journaled
        start(requests)

    monkeypatch.setattr(hand, "start", watched)
    loop.drive([close_lost])
    assert desk.store.run(RUN).outcome == "ok"
    assert [request.attempt for request in hand.started] == [1, 1, 1, 1]


def test_a_place_that_is_free_again_is_taken(desks: Any) -> None:
    desk: Desk = desks(MAP)

    def play(desk: Desk) -> Iterator[list[Report]]:
        assert len(desk.hand.running) == 1
        yield [desk.hand.end(desk.hand.names()[0], ok("1"))]
        yield desk.hand.end_all(ok("2"))
        yield desk.hand.end_all(ok("3"))

    desk.drive(play, places=1)
    assert desk.store.artifact(RUN, 0) == b'["1","2","3"]'


# signals


def test_an_interrupt_ends_children_gently_and_leaves_a_run_that_can_go_on(desks: Any) -> None:
    desk: Desk = desks(MAP)

    def play(desk: Desk) -> Iterator[list[Report]]:
        desk.loop.interrupt()
        yield [desk.hand.end(desk.hand.names()[0], ok("done"))]
        assert desk.hand.cancelled == [5.0]
        assert len(desk.hand.running) == 1
        yield desk.hand.end_all(aborted())

    loop = desk.drive(play)
    assert loop.stop is Stop.INTERRUPT
    assert desk.hand.woken == 1
    assert sorted(desk.units().values()) == ["completed", "pending", "pending"]
    row = desk.store.run(RUN)
    assert (row.state, row.reason) == ("active", "interrupted")
    desk.drive(all_well)
    assert desk.store.run(RUN).outcome == "ok"
    assert len(desk.attempts()) == 4


def test_a_second_signal_kills_at_once(desks: Any) -> None:
    desk: Desk = desks(step("a"))

    def play(desk: Desk) -> Iterator[list[Report]]:
        desk.loop.interrupt()
        yield []
        desk.loop.interrupt()
        yield []
        assert desk.hand.cancelled == [5.0, 0.0]
        yield desk.hand.end_all(aborted())

    desk.drive(play)
    assert desk.attempts() == [("a:solo", 1, "aborted")]


def test_an_interrupted_external_effect_is_unknown(desks: Any) -> None:
    desk: Desk = desks(step("a", effects="external"))

    def play(desk: Desk) -> Iterator[list[Report]]:
        desk.loop.interrupt()
        yield desk.hand.end_all(aborted())

    desk.drive(play)
    assert desk.units() == {"a:solo": "unknown"}


def test_a_drivers_time_limit_is_an_interrupt_and_its_wait_does_not_spin(desks: Any) -> None:
    desk: Desk = desks(step("a"))

    def play(desk: Desk) -> Iterator[list[Report]]:
        assert desk.hand.waits[-1] == pytest.approx(0.2)
        desk.clock.advance(200)
        yield []
        assert desk.hand.cancelled == [5.0]
        assert desk.hand.waits[-1] == pytest.approx(0.5)
        yield desk.hand.end_all(aborted())

    assert desk.drive(play, timeout_ms=200).stop is Stop.INTERRUPT


# requests


def test_a_live_driver_abandons_within_a_second_once_its_children_have_ended(desks: Any) -> None:
    desk: Desk = desks(MAP, step("n"))
    asked: list[int] = []

    def play(desk: Desk) -> Iterator[list[Report]]:
        asked.append(desk.ask("abandon"))
        assert max(wait or 0 for wait in desk.hand.waits) <= 0.5
        desk.clock.advance(500)
        yield []
        assert desk.hand.cancelled == [5.0]
        assert desk.store.run(RUN).state == "active"
        assert desk.outcome(asked[0]) is None
        yield desk.hand.end_all(aborted())

    assert desk.drive(play).stop is Stop.ABANDON
    assert desk.store.run(RUN).state == "abandoned"
    assert desk.outcome(asked[0]) == "applied"
    assert set(desk.units().values()) == {"not_run"}


def test_a_run_that_is_being_abandoned_may_be_abandoned_again(desks: Any) -> None:
    desk: Desk = desks(step("a"))
    asked: list[int] = []

    def play(desk: Desk) -> Iterator[list[Report]]:
        asked.append(desk.ask("abandon"))
        desk.clock.advance(500)
        yield []
        asked.append(desk.ask("abandon"))
        desk.clock.advance(500)
        yield []
        yield desk.hand.end_all(aborted())

    desk.drive(play)
    asked.append(desk.ask("abandon"))
    asked.append(desk.ask("resolve", {"unit": "a:solo", "done": True}))
    assert [desk.outcome(request) for request in asked] == ["applied", "applied", None, None]
    loop, _ = desk.sit(all_well)
    loop.drive([close_lost], settle_only=True)
    assert [desk.outcome(request) for request in asked[2:]] == ["applied", "the run is abandoned"]
    assert desk.store.run(RUN).state == "abandoned"


def test_a_request_that_comes_when_the_run_has_ended_is_refused_and_harms_nothing(desks: Any) -> None:
    desk: Desk = desks(step("a"))
    desk.drive(all_well)
    asked = desk.ask("abandon")
    loop, _ = desk.sit(all_well)
    loop.drive([close_lost], settle_only=True)
    assert desk.outcome(asked) == "the run is completed"
    assert desk.store.run(RUN).state == "completed"


def test_a_person_answers_for_an_unknown_effect_while_other_work_goes_on(desks: Any) -> None:
    desk: Desk = desks(step("a", effects="external"), step("b", needs=[]))
    asked: list[int] = []

    def play(desk: Desk) -> Iterator[list[Report]]:
        yield [desk.hand.end("a:solo", failed(Reason.TIMEOUT, answered=False))]
        asked.append(desk.ask("resolve", {"unit": "a:solo", "done": True}))
        asked.append(desk.ask("resolve", {"unit": "a:solo", "done": True}))
        desk.clock.advance(600)
        yield []
        yield [desk.hand.end("b:solo", ok())]

    desk.drive(play)
    assert desk.store.run(RUN).outcome == "ok"
    assert [desk.outcome(request) for request in asked] == ["applied", "unit 'a:solo' is completed, not unknown"]


# the clock


@pytest.mark.parametrize("jump", [-86_400_000, 86_400_000])
def test_a_wall_clock_that_jumps_neither_shortens_nor_prolongs_a_backoff(desks: Any, jump: int) -> None:
    retry = Retry(max=1, backoff=Backoff(initial_ms=400, factor=1.0))
    desk: Desk = desks(step("a", retry=retry))

    def play(desk: Desk) -> Iterator[list[Report]]:
        desk.clock.jump(jump)
        yield desk.hand.end_all(failed())
        assert desk.hand.waits[-1] == pytest.approx(0.4)
        desk.clock.jump(jump)
        desk.clock.advance(399)
        yield []
        assert desk.hand.running == {}
        desk.clock.advance(1)
        yield []
        yield desk.hand.end_all(ok())

    desk.drive(play)
    assert desk.store.run(RUN).outcome == "ok"


def test_a_unit_that_is_due_but_has_no_place_does_not_make_the_loop_spin(desks: Any) -> None:
    retry = Retry(max=1, backoff=Backoff(initial_ms=10, factor=1.0))
    desk: Desk = desks(step("m", map=over("params.items", concurrency=1), retry=retry))

    def play(desk: Desk) -> Iterator[list[Report]]:
        yield desk.hand.end_all(failed())
        desk.clock.advance(50)
        yield []
        assert desk.hand.waits[-1] == pytest.approx(0.5)
        yield from all_well(desk)

    desk.drive(play)
    assert desk.store.run(RUN).outcome == "ok"


# what workers report


def test_processes_and_audits_are_journaled_and_a_warning_only_once(desks: Any) -> None:
    desk: Desk = desks(step("a"))
    audit = EnvAudit(step=0, names=("TOKEN",), warnings=("TOKEN is too short to be hidden",))

    def play(desk: Desk) -> Iterator[list[Report]]:
        dispatch = desk.hand.started[0].dispatch
        yield [Started(dispatch=dispatch, process=Process(7, 8, "boot")), audit, audit]
        yield [Started(dispatch="nobody's", process=Process(9, 9, "boot"))]
        end = desk.hand.end("a:solo", ok())
        yield [Started(dispatch=dispatch, process=Process(7, 8, "boot")), end, end]

    desk.drive(play)
    assert [name for name in desk.history() if name in ("attempt_started", "env_resolved", "notice")] == [
        "attempt_started", "env_resolved", "notice", "env_resolved",
    ]  # fmt: skip
    assert desk.store.attempts(RUN, 0, 0)[0].process == Process(7, 8, "boot")
    assert desk.store.run(RUN).outcome == "ok"


def test_an_end_that_somebody_else_has_written_is_warned_of(desks: Any) -> None:
    desk: Desk = desks(step("a"))

    def play(desk: Desk) -> Iterator[list[Report]]:
        dispatch = desk.hand.started[0].dispatch
        closed = ev.AttemptFinished(
            at=1, step=0, unit=0, number=1, dispatch=dispatch,
            state=AttemptState.ABORTED, unit_state=UnitState.PENDING, reason=Reason.ABORTED,
        )  # fmt: skip
        desk.store.commit(desk.lease, [closed])
        desk.loop.interrupt()
        yield desk.hand.end_all(ok())

    desk.drive(play)
    (warned,) = [event.text for event in desk.told if isinstance(event, ev.Notice)]
    assert warned == (
        f"the end of attempt {desk.hand.started[0].dispatch} of run {RUN} was not recorded: "
        "another driver had closed the attempt before"
    )
    assert desk.attempts() == [("a:solo", 1, "aborted")]


# the world


def test_a_directory_that_is_gone_stops_the_driver_before_anything_is_reserved(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    desk = Desk(tmp_path, real_plan(home, step("a")))
    home.rmdir()
    try:
        loop = desk.drive(all_well)
    finally:
        rows = desk.attempts()
        desk.close()
    assert isinstance(loop.error, DispatchRefusedError)
    assert (rows, desk.hand.started) == ([], [])


def test_what_a_failed_run_left_is_not_started_by_a_driver_that_only_answers(desks: Any) -> None:
    desk: Desk = desks(step("a", Command(argv=("true",))))
    loop, hand = desk.sit(all_well)
    loop.drive([close_lost], settle_only=True)
    assert hand.started == []
    assert desk.store.run(RUN).state == RunState.ACTIVE


def test_a_module_that_changed_blocks_its_step_at_once_and_others_go_on(tmp_path: Path, desks: Any) -> None:
    file = tmp_path / "mod.py"
    file.write_text("x = 1\n", encoding="utf-8")
    target = PythonFunction(module="mod", function="f", file=str(file), sha256="sha256:another")
    desk: Desk = desks(step("f", target), step("other", needs=[]))
    desk.drive(all_well)
    assert [row.state for row in desk.store.steps(RUN)] == ["blocked", "completed"]
    row = desk.store.run(RUN)
    assert (row.state, row.reason) == ("blocked", "module_changed")
    assert row.detail == f"step 'f': module mod ({file}) changed since the run began"
    assert [request.unit_id for request in desk.hand.started] == ["other:solo"]


def test_what_was_reserved_for_a_turn_that_fails_is_not_journaled(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    desk = Desk(tmp_path, real_plan(home, step("pay", effects="external"), step("b", needs=[])))

    try:
        loop, hand = desk.sit(all_well)
        jobs: Any = vars(loop)["_family"].root.jobs
        true_job = jobs.job

        def job(asked: Any, unit: Any) -> Any:
            if asked.id == "b":
                # the world changes between two steps of one turn
                home.rmdir()
            return true_job(asked, unit)

        jobs.job = job
        loop.drive([close_lost])
        assert isinstance(loop.error, DispatchRefusedError)
        assert (hand.started, desk.attempts()) == ([], [])
        assert desk.units() == {"pay:solo": "pending", "b:solo": "pending"}
    finally:
        desk.close()
