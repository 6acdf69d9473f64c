"""What every store promises of child runs: born, written, fenced, counted and removed with the run above them."""

from __future__ import annotations

import pytest
from tests.store import builders as b

from interlock.errors import StoreError
from interlock.model import events as ev
from interlock.model.run import Lease
from interlock.model.states import RunState
from interlock.store.base import Store
from interlock.store.births import Below


def grandchild(store: Store, mine: Lease) -> str:
    run_id = b.CHILD + "-child"
    new = b.new_child(run_id, parent=b.CHILD)
    store.commit(mine, [], [Below(run_id=run_id, events=[b.started(1)], new=new)])
    return run_id


def end(store: Store, mine: Lease) -> None:
    """End the parent as failed, its child as abandoned."""
    failed = b.run_moved(RunState.FAILED, reason="r", outcome="failed")
    abandoned = b.run_moved(RunState.ABANDONED, reason="r", outcome="abandoned")
    store.commit(mine, [failed], [Below(run_id=b.CHILD, events=[abandoned])])


class ChildrenSuite:
    """Mixed into a test class whose `store` fixture gives an empty store."""

    def test_a_child_is_born_with_the_reservation_of_its_unit(self, store: Store) -> None:
        b.with_child(store)
        (child,) = store.children(b.RUN)
        assert (child.id, child.state, child.parent, child.parent_unit, child.root) == (
            b.CHILD,
            "active",
            b.RUN,
            "s:w0",
            b.RUN,
        )
        assert child.family == store.run(b.RUN).family == b.RUN
        assert [unit.state for unit in store.units(b.RUN)] == ["running"]
        assert [unit.state for unit in store.units(b.CHILD)] == ["pending"]

    def test_a_batch_that_is_refused_in_a_child_leaves_nothing_in_its_parent(self, store: Store) -> None:
        mine = b.lease()
        store.create_run(b.new_run(), mine)
        bad = Below(run_id=b.CHILD, events=[b.reserved(7)], new=b.new_child())
        with pytest.raises(StoreError):
            store.commit(mine, [b.started(1)], [bad])
        assert list(store.units(b.RUN)) == []
        assert store.children(b.RUN) == []

    def test_there_is_one_child_for_each_unit(self, store: Store) -> None:
        mine = b.with_child(store)
        with pytest.raises(StoreError) as caught:
            store.commit(mine, [], [Below(run_id="other", events=[], new=b.new_child("other"))])
        assert caught.value.code == "bad-row"

    def test_a_child_has_the_lease_of_the_run_above_it(self, store: Store) -> None:
        mine = b.with_child(store)
        assert store.read_lease(b.CHILD) == store.read_lease(b.RUN) == mine
        assert store.read_lease(grandchild(store, mine)) == mine

    def test_who_lost_the_lease_changes_no_child_but_ends_its_own_attempts(self, store: Store) -> None:
        mine = b.with_child(store)
        store.commit(mine, [], [Below(run_id=b.CHILD, events=[b.reserved(0)])])
        store.release(mine)
        other = b.lease(term=2, holder="other")
        assert store.take_lease(other, store.read_lease(b.RUN))
        events: list[ev.Event] = [b.finished(0), b.run_moved(RunState.FAILED, reason="r", outcome="failed")]
        done = store.commit(mine, [], [Below(run_id=b.CHILD, events=events)])
        assert done.lost
        assert store.run(b.CHILD).state == "active"
        assert [unit.state for unit in store.units(b.CHILD)] == ["completed"]

    def test_a_run_of_another_family_is_not_written_under_this_lease(self, store: Store) -> None:
        mine = b.with_child(store)
        store.create_run(b.new_run("stranger"), b.lease("stranger"))
        with pytest.raises(StoreError) as caught:
            store.commit(mine, [], [Below(run_id="stranger", events=[b.started(1)])])
        assert caught.value.code == "not-of-this-run"

    def test_what_a_child_uses_counts_once_and_in_all_runs_above_it(self, store: Store) -> None:
        mine = b.with_child(store)
        below = grandchild(store, mine)
        usage = ev.Usage(input_tokens=5, output_tokens=2, cost_usd=0.5)
        events: list[ev.Event] = [b.reserved(0), b.finished(0, usage=usage)]
        store.commit(mine, [], [Below(run_id=below, events=events)])
        for run_id in (b.RUN, b.CHILD, below):
            spent = store.spent(run_id)
            assert (spent.units, spent.tokens, spent.cost_usd) == (1, 7, 0.5)
            assert (store.load(run_id).dispatched, store.load(run_id).tokens) == (1, 7)

    def test_children_are_listed_only_when_asked_for(self, store: Store) -> None:
        b.with_child(store)
        assert [run.id for run in store.runs()] == [b.RUN]
        assert [run.id for run in store.runs(children=True)] == [b.CHILD, b.RUN]
        assert [run.id for run in store.runs(limit=1)] == [b.RUN]

    def test_a_child_is_removed_with_its_parent_and_not_before(self, store: Store) -> None:
        mine = b.with_child(store)
        end(store, mine)
        with pytest.raises(StoreError) as caught:
            store.delete_run(b.CHILD)
        assert (caught.value.code, caught.value.hint) == ("run-is-child", f"remove {b.RUN}")
        store.release(mine)
        store.delete_run(b.RUN)
        assert store.runs(children=True) == []

    def test_a_parent_is_kept_while_a_fork_of_its_child_may_go_on(self, store: Store) -> None:
        mine = b.with_child(store)
        end(store, mine)
        store.release(mine)
        store.create_run(b.new_run("fork", forked_from=b.CHILD), b.lease("fork"))
        with pytest.raises(StoreError) as caught:
            store.delete_run(b.RUN)
        assert caught.value.code == "run-needed"

    def test_a_parent_is_needed_by_a_fork_as_long_as_that_as_a_whole_may_go_on(self, store: Store) -> None:
        mine = b.with_child(store)
        end(store, mine)
        store.release(mine)
        fork = b.lease("fork")
        store.create_run(b.new_run("fork"), fork)
        below = b.new_child("below", parent="fork", root="fork", forked_from=b.CHILD)
        store.commit(fork, [b.started(1)], [Below(run_id="below", events=[b.started(1)], new=below)])
        with pytest.raises(StoreError) as caught:
            store.delete_run(b.RUN)
        assert (str(caught.value), caught.value.hint) == (
            f"run {b.CHILD} is needed by its fork fork, which has not ended",
            "`interlock run fork` goes on with it, `interlock abandon fork` ends it",
        )
        failed = b.run_moved(RunState.FAILED, reason="r", outcome="failed")
        store.commit(fork, [failed], [Below(run_id="below", events=[b.run_moved(RunState.BLOCKED, reason="r")])])
        store.release(fork)
        store.delete_run(b.RUN)
        assert [row.id for row in store.runs()] == ["fork"]

    def test_what_is_asked_of_any_run_of_a_family_is_found_with_one_question(self, store: Store) -> None:
        mine = b.with_child(store)
        below = grandchild(store, mine)
        store.create_run(b.new_run("other"), b.lease("other"))
        asked = [store.request(run, "approve", b"{}", "me", 1) for run in (below, b.RUN, "other", b.CHILD)]
        found = store.open_requests(b.RUN)
        assert [(row.id, row.run_id) for row in found] == [(asked[0], below), (asked[1], b.RUN), (asked[3], b.CHILD)]
        applied = ev.RequestApplied(at=2, request=asked[0], outcome="applied")
        store.commit(mine, [], [Below(run_id=below, events=[applied])])
        assert [row.id for row in store.open_requests(b.RUN)] == [asked[1], asked[3]]
