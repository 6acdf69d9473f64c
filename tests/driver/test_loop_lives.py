"""Lives of runs with judges, people and quotas, on a real journal: it takes every event, and gives the run back."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.decide.lives import ITEMS, Life, agent_plans
from tests.driver.desk import HOST, RUN, new_run
from tests.driver.test_load import known

from interlock.driver.lease import fresh
from interlock.driver.load import restore
from interlock.model.plan import Plan
from interlock.model.run import Snapshot
from interlock.store.sqlite import SqliteStore
from interlock.testing.clock import FakeClock
from interlock.testing.simulate import snapshot


class Kept:
    """A journal beside a life: what the one did since the last look, the other is told."""

    def __init__(self, plan: Plan, store: SqliteStore) -> None:
        self.plan = plan
        self.store = store
        self.lease = fresh(RUN, 1, HOST, FakeClock())
        self.told = 0
        store.create_run(new_run(plan, ITEMS), self.lease)

    def tell(self, life: Life, size: int) -> None:
        """Commit what is new, `size` events at a time, and read the run back."""
        while self.told < len(life.events):
            batch = life.events[self.told : self.told + size]
            done = self.store.commit(self.lease, batch)
            assert (done.lost, done.refused) == (False, ())
            self.told += len(batch)
        found, _ = restore(self.plan, self.store.load(RUN), self.store.units(RUN))
        assert known(found) == known(life.simulation.snap)
        assert money(found) == money(life.simulation.snap)
        live = snapshot(self.plan, ITEMS, life.events)
        assert (found.halted is None) == (live.halted is None) == (life.simulation.snap.halted is None)


def money(snap: Snapshot) -> tuple[object, ...]:
    """Return what budgets and quotas are decided by."""
    seen = snap.usage_seen, snap.cost_seen
    return snap.tokens, round(snap.cost_usd, 6), snap.parked, snap.granted, snap.raised, seen, snap.sessions


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(agent_plans(), st.integers(0, 2**32), st.integers(1, 40))
def test_the_journal_takes_every_event_of_a_life_and_gives_the_run_back(plan: Plan, seed: int, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder, SqliteStore.in_memory(Path(folder)) as store:
        kept = Kept(plan, store)
        Life(plan, seed).live(lambda life: kept.tell(life, size))
