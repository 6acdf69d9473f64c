"""What every store does with forks: units born ended, told apart from those that were paid for."""

from __future__ import annotations

import msgspec
import pytest
from tests.store import builders as b
from tests.store.rebuild import compare

from interlock.errors import StoreError
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.states import RunState, StepState, UnitState
from interlock.store.base import Store

FORK = "20300101-r2"
ORIGIN = ev.Origin(b.RUN, "s:w0", 2)


def taken(ordinal: int, **fields: object) -> ev.NewUnit:
    reused = msgspec.structs.replace(ev.Reused(ORIGIN, result=b'"ok"'), **fields)
    return msgspec.structs.replace(b.new_unit(ordinal, ordinal), reused=reused, session="s1")


def begun(store: Store, *units: ev.NewUnit, gate: b.Gate = ()) -> None:
    store.create_run(b.new_run(gates=(gate,)), b.lease())
    mine = b.lease(FORK)
    store.create_run(b.new_run(FORK, gates=(gate,), forked_from=b.RUN, fork_step=0), mine)
    store.commit(mine, [ev.StepStarted(at=20, step=0, round=1, loop=1, units=units)])


class ForksSuite:
    """Mixed into a test class whose `store` fixture gives an empty store."""

    def test_a_unit_that_is_taken_over_is_born_ended_and_names_where_it_was_done(self, store: Store) -> None:
        begun(store, taken(0), b.new_unit(1, 1))
        first, second = store.units(FORK)
        assert (first.state, first.result, first.reused, first.attempt) == ("completed", b'"ok"', ORIGIN, 0)
        assert (first.ended_at, first.session) == (20, "s1")
        assert (second.state, second.reused) == ("pending", None)
        assert store.attempts(FORK, 0, 0) == []
        assert store.spent(FORK).units == 0
        (census,) = store.census(FORK)
        assert (census.by_state, census.reused) == ({"completed": 1, "pending": 1}, 1)
        assert (store.run(FORK).forked_from, store.run(b.RUN).forked_from) == (b.RUN, None)
        compare(store, FORK)

    def test_what_a_step_is_taken_with_may_have_failed(self, store: Store) -> None:
        begun(store, taken(0, state=UnitState.FAILED, reason="timeout", result=None))
        (unit,) = store.units(FORK)
        assert (unit.state, unit.reason, unit.result) == ("failed", "timeout", None)
        compare(store, FORK)

    def test_a_verdict_that_is_taken_over_opens_the_gate_for_its_artifact_only(self, store: Store) -> None:
        begun(store, taken(0), gate=("check",))
        mine, hashed = b.lease(FORK), canon.sha256(b'["ok"]')
        asked = ev.NewUnit(1, "s.gate:l1", None, None, hashed, hashed)
        answer = ev.Reused(ORIGIN, verdict="pass", result=b'{"verdict":"pass"}')
        units = (msgspec.structs.replace(asked, reused=answer),)
        gating = StepState.GATING
        store.commit(mine, [ev.UnitsAdded(at=30, step=0, kind="gate", round=1, loop=1, state=gating, units=units)])
        with pytest.raises(StoreError) as refused:
            store.commit(mine, [b.completed(b'["other"]')])
        assert refused.value.code == "gate-not-passed"
        store.commit(mine, [b.completed(b'["ok"]')])
        assert store.steps(FORK)[0].state == "completed"
        compare(store, FORK)

    def test_a_unit_that_was_taken_over_is_never_dispatched(self, store: Store) -> None:
        begun(store, taken(0))
        with pytest.raises(StoreError):
            store.commit(b.lease(FORK), [b.reserved(0)])
        assert store.attempts(FORK, 0, 0) == []

    def test_a_run_that_an_unfinished_fork_needs_is_not_deleted(self, store: Store) -> None:
        begun(store, taken(0))
        abandoned = b.run_moved(RunState.ABANDONED, outcome="abandoned")
        store.commit(b.lease(), [abandoned])
        store.release(b.lease())
        with pytest.raises(StoreError) as refused:
            store.delete_run(b.RUN)
        assert refused.value.code == "run-needed"
        store.commit(b.lease(FORK), [abandoned])
        with pytest.raises(StoreError) as refused:
            store.delete_run(b.RUN, lambda lease: lease.run_id == FORK)
        assert refused.value.code == "run-driven"
        assert str(refused.value) == f"run {b.RUN} is needed by its fork {FORK}, which is driven by pid 1 on here"
        store.release(b.lease(FORK))
        store.delete_run(b.RUN)
        assert [row.id for row in store.runs()] == [FORK]

    def test_no_fork_is_made_of_a_run_that_is_gone(self, store: Store) -> None:
        with pytest.raises(StoreError) as refused:
            store.create_run(b.new_run(FORK, forked_from=b.RUN), b.lease(FORK))
        assert (refused.value.code, str(refused.value)) == ("run-not-found", f"there is no run {b.RUN}")
        assert store.runs() == []
