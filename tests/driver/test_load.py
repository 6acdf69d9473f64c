from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.decide.runs import PARAMS, picker, plans, world
from tests.driver.desk import HOST, RUN, new_run

from interlock.driver.lease import fresh
from interlock.driver.load import restore
from interlock.model import events as ev
from interlock.model.plan import Plan
from interlock.model.run import Snapshot
from interlock.model.states import StepState
from interlock.store.sqlite import SqliteStore
from interlock.testing.build import plan, step
from interlock.testing.clock import FakeClock
from interlock.testing.simulate import simulate, snapshot


def known(snap: Snapshot) -> dict[str, Any]:
    """Return all that a decision may look at."""
    steps = [
        (
            s.state, s.reason, s.detail, s.round, s.loop, s.artifact, s.artifact_hash, s.route, s.counts, s.asking,
            [(u.id, u.state, u.attempt, u.retries, u.result, u.verdict, u.subject, u.asks, u.feedback, u.session) for u in s.units],
            [u.id for u in s.work], sorted(u.id for u in s.asked), sorted(s.running),
            s.state in (StepState.RUNNING, StepState.GATING) and (sorted(u.id for u in s.ready), sorted(s.backoff)),
        )
        for s in snap.steps
    ]  # fmt: skip
    run = (snap.run.state, snap.run.reason, snap.run.outcome, snap.run.driven_ms)
    return {
        "steps": steps,
        "run": run,
        "open": snap.open,
        "running": snap.running,
        "dispatched": snap.dispatched,
        "parked": snap.parked,
    }


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(plans(), st.integers(0, 2**32), st.integers(1, 60))
def test_a_run_read_from_the_journal_is_the_run_that_was_in_memory(plan: Plan, seed: int, cut: int) -> None:
    events = simulate(plan, world(seed, plan), PARAMS, pick=picker(seed)).events[:cut]
    with tempfile.TemporaryDirectory() as folder, SqliteStore.in_memory(Path(folder)) as store:
        lease = fresh(RUN, 1, HOST, FakeClock())
        store.create_run(new_run(plan, PARAMS), lease)
        assert not store.commit(lease, events).lost
        found, hashes = restore(plan, store.load(RUN), store.units(RUN))
    live = snapshot(plan, PARAMS, events)
    assert known(found) == known(live)
    assert (found.halted is None) == (live.halted is None)
    done = {
        (s.index, u.ordinal)
        for s in live.steps
        if not s.ended
        for u in s.units
        if u.kind == "work" and u.state == "completed"
    }
    assert set(hashes) == done


def test_amendments_and_notices_come_back(tmp_path: Path) -> None:
    specs = plan(step("a"))
    with SqliteStore.in_memory(tmp_path) as store:
        lease = fresh(RUN, 1, HOST, FakeClock())
        store.create_run(new_run(specs, {"p": 1}), lease)
        store.commit(
            lease,
            [
                ev.BudgetRaised(at=1, name="max_units", value=9),
                ev.ModulesAccepted(at=1, hashes={"f": "sha256:1"}),
                ev.Notice(at=1, code="once", text="text"),
            ],
        )
        found, _ = restore(specs, store.load(RUN), store.units(RUN))
    assert (found.raised, found.accepted, found.noticed) == ({"max_units": 9}, {"f": "sha256:1"}, {"once"})
    assert found.run.params == {"p": 1}
