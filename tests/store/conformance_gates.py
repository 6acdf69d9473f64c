"""What every store does with gates of several stages, majorities, items, and the verdicts of people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from tests.store import builders as b

from interlock.errors import StoreError
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.run import Lease
from interlock.model.states import RunState, StepState, UnitState
from interlock.store.base import Store

OK = b'["ok"]'
THIS = canon.sha256(OK)
RESULT = canon.sha256(b'"ok"')
OTHER = canon.sha256(b'"other"')
Answers = Sequence[ev.Verdict | None]


def answered(first: int, answers: Answers) -> Iterator[ev.Event]:
    """Reserve and end the units from `first` on; None is an answer that could not be had."""
    for unit, verdict in enumerate(answers, first):
        yield b.reserved(unit)
        yield b.failed(unit) if verdict is None else b.finished(unit, verdict=verdict)


def work_done(store: Store, units: int, gate: b.Gate) -> Lease:
    mine = b.begin(store, units, gate=gate)
    store.commit(mine, [b.reserved(i) for i in range(units)])
    store.commit(mine, [b.finished(i) for i in range(units)])
    return mine


def refused(store: Store, mine: Lease, event: ev.Event, text: str) -> None:
    before = store.steps(b.RUN), store.events(b.RUN), store.approvals(b.RUN), list(store.units(b.RUN))
    with pytest.raises(StoreError) as caught:
        store.commit(mine, [event])
    assert str(caught.value) == text
    assert (store.steps(b.RUN), store.events(b.RUN), store.approvals(b.RUN), list(store.units(b.RUN))) == before


def not_passed(store: Store, mine: Lease, stage: str, what: str = "this artifact") -> None:
    refused(store, mine, b.completed(), f"step 0 cannot complete: its {stage} has not passed {what}")


def passes(store: Store, mine: Lease) -> None:
    store.commit(mine, [b.completed()])
    assert store.steps(b.RUN)[0].state == "completed"


class GatesSuite:
    """Mixed into a test class whose `store` fixture gives an empty store."""

    def test_each_stage_of_a_gate_must_pass(self, store: Store) -> None:
        mine = work_done(store, 1, ("check", "judge", "approval"))
        not_passed(store, mine, "check")
        store.commit(mine, [b.asked(THIS, first=1), *answered(1, ["pass"])])
        not_passed(store, mine, "judge")
        store.commit(mine, [b.asked(THIS, first=2, kind="judge"), *answered(2, ["pass"])])
        not_passed(store, mine, "approval")
        store.commit(mine, [b.asked(THIS, first=3, kind="approval")])
        not_passed(store, mine, "approval")
        store.commit(mine, [b.approved(3, THIS)])
        passes(store, mine)

    def test_a_later_stage_does_not_make_up_for_an_earlier_one(self, store: Store) -> None:
        mine = work_done(store, 1, ("check", "judge"))
        store.commit(mine, [b.asked(THIS, first=1), b.asked(THIS, first=2, kind="judge")])
        store.commit(mine, [*answered(1, ["reject"]), *answered(2, ["pass"])])
        not_passed(store, mine, "check")

    @pytest.mark.parametrize(
        ("answers", "passed"),
        [
            (["pass", "pass", "reject"], True),
            (["pass", None, "pass"], True),
            (["pass", "reject", "reject"], False),
            (["pass", None, "reject"], False),
            (["pass", None], False),
            ([None, None, None], False),
            (["pass", "pass", "reject", "reject"], False),
        ],
    )
    def test_a_strict_majority_of_the_judges_asked_decides(self, store: Store, answers: Answers, passed: bool) -> None:  # noqa: FBT001 - a case's outcome
        mine = work_done(store, 1, ("judge",))
        store.commit(mine, [b.asked(*[THIS] * len(answers), first=1, kind="judge"), *answered(1, answers)])
        if passed:
            passes(store, mine)
        else:
            not_passed(store, mine, "judge")

    def test_a_tie_of_judges_passes_nothing(self, store: Store) -> None:
        self.test_a_strict_majority_of_the_judges_asked_decides(store, ["pass", "reject"], passed=False)

    def test_judges_that_have_not_answered_count_as_asked(self, store: Store) -> None:
        mine = work_done(store, 1, ("judge",))
        store.commit(mine, [b.asked(THIS, THIS, THIS, first=1, kind="judge"), *answered(1, ["pass"])])
        not_passed(store, mine, "judge")
        store.commit(mine, [b.reserved(2)])
        not_passed(store, mine, "judge")
        store.commit(mine, [b.finished(2, verdict="pass")])
        passes(store, mine)

    def test_verdicts_on_another_subject_never_count(self, store: Store) -> None:
        mine = work_done(store, 1, ("judge",))
        others = b.asked(OTHER, OTHER, OTHER, THIS, first=1, kind="judge")
        store.commit(mine, [others, *answered(1, ["pass", "pass", "pass", "reject"])])
        not_passed(store, mine, "judge")

    def test_rejections_of_another_subject_do_not_count_either(self, store: Store) -> None:
        mine = work_done(store, 1, ("judge",))
        others = b.asked(OTHER, OTHER, OTHER, THIS, first=1, kind="judge")
        store.commit(mine, [others, *answered(1, ["reject", "reject", "reject", "pass"])])
        passes(store, mine)

    def test_a_check_is_no_judge_and_a_probe_is_neither(self, store: Store) -> None:
        mine = work_done(store, 1, ("judge",))
        store.commit(mine, [b.asked(THIS, first=1), *answered(1, ["pass"])])
        store.commit(mine, [b.step_moved(StepState.RUNNING), b.asked(THIS, first=2, kind="probe")])
        store.commit(mine, [*answered(2, ["pass"])])
        not_passed(store, mine, "judge")

    def test_a_verdict_of_an_earlier_loop_does_not_hold_for_the_artifact(self, store: Store) -> None:
        mine = work_done(store, 1, ("judge",))
        store.commit(mine, [b.asked(THIS, first=1, kind="judge"), *answered(1, ["pass"])])
        store.commit(mine, [b.started(1, first=2, loop=2), b.reserved(2), b.finished(2)])
        not_passed(store, mine, "judge")
        store.commit(mine, [b.asked(THIS, first=3, kind="judge", loop=2), *answered(3, ["pass"])])
        passes(store, mine)

    def test_items_that_passed_in_an_earlier_loop_are_not_asked_again(self, store: Store) -> None:
        mine = work_done(store, 2, ("judge", "each"))
        store.commit(mine, [b.asked(RESULT, RESULT, first=2, kind="judge"), *answered(2, ["pass", "reject"])])
        not_passed(store, mine, "judge", "the result of item 1")
        again = ev.StepStarted(at=80, step=0, round=1, loop=2, units=(b.new_unit(4, 1),))
        store.commit(mine, [again, b.reserved(4), b.finished(4, result=b'"other"')])
        not_passed(store, mine, "judge", "the result of item 1")
        judge = ev.NewUnit(5, "s.gate", 1, b"1", "h", OTHER)
        asked = ev.UnitsAdded(at=81, step=0, kind="judge", round=1, loop=2, state=StepState.GATING, units=(judge,))
        store.commit(mine, [asked, *answered(5, ["pass"])])
        passes(store, mine)

    def test_of_an_items_equal_results_the_verdict_of_the_last_loop_holds(self, store: Store) -> None:
        mine = work_done(store, 2, ("judge", "each"))
        store.commit(mine, [b.asked(RESULT, RESULT, first=2, kind="judge"), *answered(2, ["reject", "pass"])])
        store.commit(mine, [b.started(2, first=4, loop=2), *(b.reserved(unit) for unit in (4, 5))])
        store.commit(mine, [b.finished(4), b.finished(5), b.asked(RESULT, RESULT, first=6, kind="judge", loop=2)])
        store.commit(mine, [*answered(6, ["pass", "reject"])])
        not_passed(store, mine, "judge", "the result of item 1")

    def test_an_item_is_not_passed_by_the_verdict_on_another_with_the_same_result(self, store: Store) -> None:
        mine = work_done(store, 2, ("check", "each"))
        store.commit(mine, [b.asked(RESULT, first=2), *answered(2, ["pass"])])
        not_passed(store, mine, "check", "the result of item 1")

    def test_every_stage_looks_at_every_item(self, store: Store) -> None:
        mine = work_done(store, 2, ("check", "approval", "each"))
        store.commit(mine, [b.asked(RESULT, RESULT, first=2), *answered(2, ["pass", "pass"])])
        store.commit(mine, [b.asked(RESULT, RESULT, first=4, kind="approval"), b.approved(4, RESULT)])
        not_passed(store, mine, "approval", "the result of item 1")
        store.commit(mine, [b.approved(5, RESULT)])
        passes(store, mine)

    def test_a_person_overrides_every_stage_for_what_they_saw(self, store: Store) -> None:
        mine = work_done(store, 1, ("check", "judge"))
        store.commit(mine, [b.asked(THIS, first=1), *answered(1, ["reject"])])
        store.commit(mine, [b.asked(THIS, first=2, kind="approval")])
        store.commit(mine, [b.approved(2, THIS, override=True, note="known")])
        refused(store, mine, b.completed(b"[]"), "step 0 cannot complete: its check has not passed this artifact")
        passes(store, mine)

    def test_an_approval_that_overrides_nothing_is_only_one_stage(self, store: Store) -> None:
        mine = work_done(store, 1, ("check", "approval"))
        store.commit(mine, [b.asked(THIS, first=1), *answered(1, ["reject"])])
        store.commit(mine, [b.asked(THIS, first=2, kind="approval"), b.approved(2, THIS)])
        not_passed(store, mine, "check")

    def test_an_override_of_one_item_is_for_that_item(self, store: Store) -> None:
        mine = work_done(store, 2, ("check", "each"))
        store.commit(mine, [b.asked(RESULT, RESULT, first=2), *answered(2, ["reject", "reject"])])
        store.commit(mine, [b.asked(RESULT, first=4, kind="approval"), b.approved(4, RESULT, override=True)])
        not_passed(store, mine, "check", "the result of item 1")

    def test_a_persons_verdict_is_kept_with_who_when_and_note(self, store: Store) -> None:
        mine = work_done(store, 1, ("approval",))
        store.commit(mine, [b.asked(THIS, first=1, kind="approval"), b.approved(1, THIS, "reject", note="Zebra")])
        unit = list(store.units(b.RUN))[1]
        assert (unit.state, unit.verdict, unit.ended_at) == ("completed", "reject", 55)
        assert unit.result == b'{"feedback":"Zebra","verdict":"reject"}'
        (said,) = store.approvals(b.RUN)
        assert (said.step, said.unit, said.at, said.made_by) == (0, 1, 55, "ann")
        assert (said.verdict, said.subject, said.override, said.note) == ("reject", THIS, False, "Zebra")
        not_passed(store, mine, "approval")

    def test_a_verdict_is_taken_once_and_only_for_what_was_asked(self, store: Store) -> None:
        mine = work_done(store, 1, ("check", "approval"))
        store.commit(mine, [b.asked(THIS, first=1), b.asked(THIS, first=2, kind="approval")])
        for unit, subject in ((2, OTHER), (1, THIS), (0, THIS), (9, THIS)):
            text = f"unit {unit} of step 0 does not wait for a person's verdict on {subject}"
            refused(store, mine, b.approved(unit, subject), text)
        store.commit(mine, [b.approved(2, THIS, "reject")])
        text = f"unit 2 of step 0 does not wait for a person's verdict on {THIS}"
        refused(store, mine, b.approved(2, THIS), text)

    def test_no_dispatch_ever_answers_for_a_person(self, store: Store) -> None:
        mine = work_done(store, 1, ("approval",))
        store.commit(mine, [b.asked(THIS, first=1, kind="approval")])
        with pytest.raises(StoreError) as caught:
            store.commit(mine, [b.reserved(1), b.finished(1, verdict="pass")])
        assert caught.value.code == "illegal-move"
        store.commit(mine, [ev.UnitMoved(at=51, step=0, unit=1, state=UnitState.COMPLETED)])
        not_passed(store, mine, "approval")

    def test_of_several_overrides_the_last_decides(self, store: Store) -> None:
        mine = work_done(store, 1, ("check",))
        said: list[ev.Verdict] = ["reject", "pass", "reject"]
        for unit, verdict in enumerate(said, 1):
            store.commit(mine, [b.asked(THIS, first=unit, kind="approval")])
            store.commit(mine, [b.approved(unit, THIS, verdict, override=True)])
            if verdict == "reject":
                not_passed(store, mine, "check")
        store.commit(mine, [b.asked(THIS, first=4, kind="approval"), b.approved(4, THIS, override=True)])
        passes(store, mine)

    def test_a_judge_that_is_asked_again_starts_anew(self, store: Store) -> None:
        mine = work_done(store, 1, ("judge",))
        end = b.failed(1, retries=3, asks=1)
        store.commit(mine, [b.asked(THIS, first=1, kind="judge"), b.reserved(1), end])
        store.commit(mine, [ev.UnitMoved(at=51, step=0, unit=1, state=UnitState.PENDING)])
        judge = list(store.units(b.RUN))[1]
        assert (judge.state, judge.retries, judge.asks) == ("pending", 0, 0)

    def test_a_person_may_answer_while_the_run_is_blocked(self, store: Store) -> None:
        mine = work_done(store, 1, ("approval",))
        store.commit(mine, [b.asked(THIS, first=1, kind="approval"), b.run_moved(RunState.BLOCKED, reason="approval")])
        store.commit(mine, [b.approved(1, THIS)])
        store.commit(mine, [b.run_moved(RunState.ACTIVE)])
        passes(store, mine)

    def test_stopped_judges_are_not_run(self, store: Store) -> None:
        mine = work_done(store, 1, ("judge", "approval"))
        store.commit(mine, [b.asked(THIS, first=1, kind="judge"), b.asked(THIS, first=2, kind="approval")])
        store.commit(mine, [ev.UnitsStopped(at=80, step=0, reason="stopped")])
        assert [u.state for u in store.units(b.RUN)] == ["completed", "not_run", "not_run"]
