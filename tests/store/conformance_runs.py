"""What every store does with runs, leases, requests and listings."""

from __future__ import annotations

import pytest
from tests.store import builders as b

from interlock.errors import StoreError
from interlock.model import events as ev
from interlock.model.run import Lease
from interlock.model.states import RunState
from interlock.store.base import Store
from interlock.store.held import AlreadyRunningError


class RunsSuite:
    """Mixed into a test class whose `store` fixture gives an empty store."""

    def test_a_new_run_is_active_with_pending_steps(self, store: Store) -> None:
        assert store.create_run(b.new_run(gates=((), ("check", "each"))), b.lease()) == b.RUN
        run = store.run(b.RUN)
        assert (run.state, run.workflow, run.parent, run.plan_hash) == ("active", "w.md", None, "sha256:plan")
        assert (run.created_at, run.ended_at, run.outcome, run.params_json) == (1, None, None, b'{"p":1}')
        assert [(s.id, s.state, s.stages, s.each, s.round) for s in store.steps(b.RUN)] == [
            ("s0", "pending", (), False, 1),
            ("s1", "pending", ("check",), True, 1),
        ]
        assert store.plan(b.RUN) == ("sha256:plan", b'{"plan":1}')

    def test_a_key_gives_the_run_of_the_same_plan_and_params(self, store: Store) -> None:
        first = store.create_run(b.new_run("r1", key="ci"), b.lease("r1"))
        again = store.create_run(b.new_run("r2", key="ci"), b.lease("r2"))
        other_params = store.create_run(b.new_run("r3", key="ci", params_json=b"{}"), b.lease("r3"))
        other_plan = store.create_run(b.new_run("r4", key="ci", plan_hash="sha256:x"), b.lease("r4"))
        assert (first, again, other_params, other_plan) == ("r1", "r1", "r3", "r4")
        assert [run.id for run in store.runs()] == ["r4", "r3", "r1"]
        b.finish_run(store, b.lease("r1"))
        assert store.create_run(b.new_run("r5", key="ci"), b.lease("r5")) == "r1"

    def test_a_second_run_of_one_id_is_refused(self, store: Store) -> None:
        store.create_run(b.new_run(), b.lease())
        with pytest.raises(StoreError) as caught:
            store.create_run(b.new_run(), b.lease())
        assert caught.value.code == "bad-row"
        assert len(store.runs()) == 1

    @pytest.mark.parametrize("verb", ["run", "plan", "steps", "load", "census", "spent", "delete_run"])
    def test_a_run_that_is_not_there_is_named(self, store: Store, verb: str) -> None:
        with pytest.raises(StoreError) as caught:
            getattr(store, verb)("nope")
        assert caught.value.code == "run-not-found"
        assert str(caught.value) == "there is no run nope"

    def test_other_reads_of_a_missing_run_say_so_too(self, store: Store) -> None:
        for read in (
            lambda: list(store.units("nope")),
            lambda: store.attempts("nope", 0, 0),
            lambda: store.artifact("nope", 0),
            lambda: store.events("nope"),
            lambda: store.requests("nope"),
            lambda: store.commit(b.lease("nope"), []),
            lambda: store.request("nope", "abandon", b"{}", "me", 1),
        ):
            with pytest.raises(StoreError) as caught:
                read()
            assert caught.value.code == "run-not-found"

    def test_runs_are_listed_newest_first_and_filtered(self, store: Store) -> None:
        for name, workflow in (("a1", "x.md"), ("a2", "y.md"), ("b1", "x.md")):
            store.create_run(b.new_run(name, workflow=workflow), b.lease(name))
        b.finish_run(store, b.lease("a2"))
        assert [run.id for run in store.runs()] == ["b1", "a2", "a1"]
        assert [run.id for run in store.runs(limit=1)] == ["b1"]
        assert [run.id for run in store.runs(state="failed")] == ["a2"]
        assert [run.id for run in store.runs(workflow="x.md", state="active")] == ["b1", "a1"]

    def test_the_newest_run_that_has_not_ended_is_found_however_many_came_after_it(self, store: Store) -> None:
        for number in range(60):
            store.create_run(b.new_run(f"r{number:02}"), b.lease(f"r{number:02}"))
            if number not in (3, 5):
                b.finish_run(store, b.lease(f"r{number:02}"))
        blocked = b.run_moved(RunState.BLOCKED, reason="gate_rejected")
        store.commit(b.lease("r05"), [blocked])
        store.create_run(b.new_run("other", workflow="y.md"), b.lease("other"))
        assert [run.id for run in store.runs(unfinished=True)] == ["other", "r05", "r03"]
        assert [run.id for run in store.runs(unfinished=True, workflow="w.md", limit=1)] == ["r05"]
        assert [run.id for run in store.runs(unfinished=True, state="failed")] == []

    def test_a_prefix_finds_runs_and_is_taken_literally(self, store: Store) -> None:
        for name in ("ab1", "ab2", "a%3", "b"):
            store.create_run(b.new_run(name), b.lease(name))
        assert store.match("ab") == ["ab2", "ab1"]
        assert store.match("a%") == ["a%3"]
        assert store.match("b") == ["b"]
        assert store.match("") == store.match("ac") == []
        for number in range(12):
            store.create_run(b.new_run(f"z{number:02}"), b.lease(f"z{number:02}"))
        assert store.match("z") == [f"z{number:02}" for number in range(11, 1, -1)]

    def test_the_lease_reads_back_as_written(self, store: Store) -> None:
        assert store.read_lease(b.RUN) is None
        store.create_run(b.new_run(), b.lease())
        assert store.read_lease(b.RUN) == b.lease()

    def test_only_the_first_taker_gets_a_released_lease(self, store: Store) -> None:
        store.create_run(b.new_run(), b.lease())
        store.release(b.lease())
        free = store.read_lease(b.RUN)
        assert free == b.lease(released=True)
        assert store.take_lease(b.lease(holder="h2", term=2), free)
        assert not store.take_lease(b.lease(holder="h3", term=2), free)
        assert store.read_lease(b.RUN) == b.lease(holder="h2", term=2)

    def test_a_lease_is_not_taken_over_a_view_that_is_out_of_date(self, store: Store) -> None:
        store.create_run(b.new_run(), b.lease())
        seen = store.read_lease(b.RUN)
        assert store.renew(b.lease(renewed_ms=50, expires_ms=150, expires_boot_ms=150))
        assert not store.take_lease(b.lease(holder="h2", term=2), seen)
        assert not store.take_lease(b.lease(holder="h2", term=2), None)
        assert not store.take_lease(b.lease(holder="h2", term=1), store.read_lease(b.RUN))
        assert store.read_lease(b.RUN) == b.lease(renewed_ms=50, expires_ms=150, expires_boot_ms=150)

    @pytest.mark.parametrize("stale", [b.lease(holder="h2"), b.lease(term=2)])
    def test_renew_and_release_of_a_lease_that_moved_change_nothing(self, store: Store, stale: Lease) -> None:
        store.create_run(b.new_run(), b.lease())
        assert not store.renew(stale)
        store.release(stale)
        assert store.read_lease(b.RUN) == b.lease()
        store.release(b.lease())
        assert not store.renew(b.lease())

    def test_requests_are_kept_in_order_and_answered_once(self, store: Store) -> None:
        store.create_run(b.new_run(), b.lease())
        first = store.request(b.RUN, "abandon", b"{}", "ann", 5)
        second = store.request(b.RUN, "raise", b'{"max_units":5}', "bob", 6)
        assert [(r.id, r.kind, r.made_by, r.made_at, r.payload_json) for r in store.requests(b.RUN)] == [
            (first, "abandon", "ann", 5, b"{}"),
            (second, "raise", "bob", 6, b'{"max_units":5}'),
        ]
        answer = ev.RequestApplied(at=7, request=first, outcome="applied")
        store.commit(b.lease(), [answer])
        assert [r.id for r in store.requests(b.RUN)] == [second]
        assert [r.outcome for r in store.requests(b.RUN, open_only=False)] == ["applied", None]
        with pytest.raises(StoreError) as caught:
            store.commit(b.lease(), [answer])
        assert caught.value.code == "request-not-open"

    def test_a_request_of_another_run_cannot_be_answered(self, store: Store) -> None:
        store.create_run(b.new_run("a"), b.lease("a"))
        store.create_run(b.new_run("b"), b.lease("b"))
        request = store.request("a", "loops", b"{}", "ann", 5)
        with pytest.raises(StoreError):
            store.commit(b.lease("b"), [ev.RequestApplied(at=7, request=request, outcome="applied")])
        assert len(store.requests("a")) == 1

    def test_amendments_and_notices_are_loaded(self, store: Store) -> None:
        store.create_run(b.new_run(), b.lease())
        store.commit(
            b.lease(),
            [
                ev.BudgetRaised(at=5, name="max_units", value=5),
                ev.BudgetRaised(at=6, name="max_units", value=9),
                ev.ModulesAccepted(at=6, hashes={"m": "sha256:1"}),
                ev.Notice(at=6, code="c", text="t"),
                ev.Notice(at=7, code="c", text="t"),
                ev.EnvResolved(at=7, step=0, names=("A",)),
                ev.Divergence(at=7, step=0, unit=3, recorded="x", computed="y"),
            ],
        )
        loaded = store.load(b.RUN)
        assert loaded.raised == {"max_units": 9.0}
        assert loaded.accepted == {"m": "sha256:1"}
        assert loaded.notices == frozenset({"c"})
        assert loaded.plan_json == b'{"plan":1}'
        assert [event.type for event in store.events(b.RUN)][-2:] == ["env_resolved", "divergence"]

    def test_events_have_growing_ids_from_one_in_each_run(self, store: Store) -> None:
        for name in ("a", "b"):
            store.create_run(b.new_run(name), b.lease(name))
            store.commit(b.lease(name), [b.run_moved(RunState.ACTIVE, driven_ms=n) for n in (1, 2, 3)])
        for name in ("a", "b"):
            events = store.events(name)
            assert [(e.id, e.run_id, e.type) for e in events] == [
                (1, name, "run_created"),
                *((n, name, "run_moved") for n in (2, 3, 4)),
            ]
            assert store.events(name, after=2, limit=1) == events[2:3]

    def test_only_an_ended_run_can_be_deleted(self, store: Store) -> None:
        mine = b.begin(store, 2)
        store.create_run(b.new_run("other"), b.lease("other"))
        store.request(b.RUN, "loops", b"{}", "ann", 5)
        with pytest.raises(StoreError) as caught:
            store.delete_run(b.RUN)
        assert caught.value.code == "run-not-ended"
        assert str(caught.value) == f"run {b.RUN} is active and may still go on"
        b.finish_run(store, mine)
        store.release(mine)
        store.spool(b.RUN, [b.finished(0)])
        store.delete_run(b.RUN, dry_run=True)
        assert [run.id for run in store.runs()] == ["other", b.RUN]
        store.delete_run(b.RUN)
        assert [run.id for run in store.runs()] == ["other"]
        assert store.read_lease(b.RUN) is None
        store.create_run(b.new_run(), b.lease())
        assert list(store.units(b.RUN)) == []
        assert [event.type for event in store.events(b.RUN)] == ["run_created"]
        assert store.take_spool(b.RUN) == 0

    def test_a_run_that_somebody_reopens_is_not_deleted_though_it_has_ended(self, store: Store) -> None:
        mine = b.begin(store, 2)
        b.finish_run(store, mine)
        asked: list[Lease] = []

        def held(lease: Lease) -> bool:
            asked.append(lease)
            return True

        for dry_run in (True, False):
            with pytest.raises(StoreError) as caught:
                store.delete_run(b.RUN, held, dry_run=dry_run)
            assert caught.value.code == "run-driven"
            assert str(caught.value) == f"run {b.RUN} is driven by pid 1 on here"
        assert asked == [mine, mine]
        with pytest.raises(StoreError) as caught:
            store.delete_run(b.RUN)
        assert caught.value.code == "run-driven"
        assert len(list(store.units(b.RUN))) == 2
        store.delete_run(b.RUN, lambda _lease: False)
        assert store.runs() == []

    def test_a_stream_of_units_whose_run_is_removed_says_so_and_does_not_just_end(self, store: Store) -> None:
        mine = b.begin(store, 1_500)
        stream = store.units(b.RUN)
        assert next(stream).ordinal == 0
        b.finish_run(store, mine)
        store.delete_run(b.RUN, lambda _lease: False)
        with pytest.raises(StoreError, match=f"there is no run {b.RUN}"):
            list(stream)

    def test_a_run_is_not_made_beside_one_of_its_workflow_that_is_driven(self, store: Store) -> None:
        for name, workflow in (("a1", "x.md"), ("a2", "x.md"), ("b1", "y.md"), ("a3", "x.md")):
            store.create_run(b.new_run(name, workflow=workflow, key=name), b.lease(name))
        store.release(b.lease("a3"))
        # one that is reopened has ended until its driver's first commit
        b.finish_run(store, b.lease("a1"))
        new, mine = b.new_run("a4", workflow="x.md", key="a2"), b.lease("a4")
        with pytest.raises(AlreadyRunningError) as caught:
            store.create_run(new, mine, alone=lambda lease: lease.run_id == "a1")
        assert (caught.value.code, caught.value.run_id) == ("already-running", "a1")
        assert str(caught.value) == "run a1 of this workflow is under way"
        assert [lease.run_id for lease in store.unreleased_leases("x.md")] == ["a2", "a1"]
        assert [lease.run_id for lease in store.unreleased_leases()] == ["b1", "a2", "a1"]
        assert len(store.runs()) == 4
        assert store.create_run(new, mine, alone=lambda lease: lease.run_id in ("a3", "b1")) == "a2"
        other = b.new_run("a5", workflow="x.md")
        assert store.create_run(other, b.lease("a5"), alone=lambda _lease: False) == "a5"

    def test_driven_time_and_reasons_of_a_run_follow_its_moves(self, store: Store) -> None:
        store.create_run(b.new_run(), b.lease())
        store.commit(b.lease(), [b.run_moved(RunState.WAITING, wait_until=99, reason="llm_quota", driven_ms=7)])
        run = store.run(b.RUN)
        assert (run.state, run.wait_until, run.reason, run.driven_ms) == ("waiting", 99, "llm_quota", 7)
        store.commit(b.lease(), [b.run_moved(RunState.ACTIVE, driven_ms=8), b.run_moved(RunState.ACTIVE, driven_ms=9)])
        b.finish_run(store, b.lease())
        run = store.run(b.RUN)
        assert (run.state, run.outcome, run.ended_at, run.wait_until) == ("failed", "failed", 70, None)
        store.commit(b.lease(), [b.run_moved(RunState.ACTIVE, driven_ms=9)])
        assert (store.run(b.RUN).ended_at, store.run(b.RUN).outcome) == (None, None)

    @pytest.mark.parametrize("to", [RunState.BLOCKED, RunState.COMPLETED, RunState.FAILED])
    def test_a_waiting_run_goes_on_only_through_active(self, store: Store, to: RunState) -> None:
        store.create_run(b.new_run(gates=()), b.lease())
        store.commit(b.lease(), [b.run_moved(RunState.WAITING, wait_until=9, reason="llm_quota")])
        with pytest.raises(StoreError) as caught:
            store.commit(b.lease(), [b.run_moved(to, reason="x")])
        assert caught.value.code == "illegal-move"
        assert str(caught.value) == f"the run cannot move from waiting to {to.value}"
        assert store.run(b.RUN).state == "waiting"

    def test_a_run_completes_only_with_all_its_steps(self, store: Store) -> None:
        store.create_run(b.new_run(), b.lease())
        done = b.run_moved(RunState.COMPLETED, outcome="ok")
        with pytest.raises(StoreError) as caught:
            store.commit(b.lease(), [done])
        assert caught.value.code == "steps-open"
        store.commit(b.lease(), [b.completed(), done])
        assert store.run(b.RUN).outcome == "ok"

    def test_a_view_holds_other_reads_and_ends_before_the_next_commit(self, store: Store) -> None:
        mine = b.begin(store)
        with store.view():
            loaded, units = store.load(b.RUN), list(store.units(b.RUN))
            with store.view():
                assert store.run(b.RUN) == loaded.run
            assert store.steps(b.RUN) == list(loaded.steps)
        assert [unit.state for unit in units] == ["pending"]
        store.commit(mine, [b.reserved(0)])
        assert [unit.state for unit in store.units(b.RUN)] == ["running"]
