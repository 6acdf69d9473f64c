"""Make `journal-v<n>.db` of the current version. Run once per format; the files of older formats are kept for ever."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.store import builders as b

from interlock.model import canon
from interlock.model import events as ev
from interlock.model.states import RunState
from interlock.store.sqlite import SqliteStore

OLD = "20300101-r0"


def fill(store: SqliteStore) -> None:
    """One run that ended degraded, with a gate, a retry and a request; one with an attempt under way."""
    mine = b.lease(OLD)
    artifact = b'["ok",null]'
    store.create_run(b.new_run(OLD, gates=("step",), key="nightly"), mine)
    store.request(OLD, "raise", b'{"max_units":9}', "somebody", 5)
    store.commit(mine, [b.started(2), b.reserved(0), b.reserved(1, warm=True), b.running(0)])
    store.commit(mine, [b.finished(0, usage=ev.Usage(input_tokens=5, cost_usd=0.25)), b.waiting(1)])
    store.commit(mine, [b.reserved(1, 2), b.failed(1, 2, retries=1), b.asked(canon.sha256(artifact), first=2)])
    store.commit(mine, [b.reserved(2), b.finished(2, verdict="pass"), b.completed(artifact)])
    store.commit(
        mine,
        [
            ev.BudgetRaised(at=60, name="max_units", value=9),
            ev.RequestApplied(at=60, request=1, outcome="applied"),
            ev.Notice(at=61, code="n", text="t"),
            b.run_moved(RunState.COMPLETED, outcome="degraded", driven_ms=9),
        ],
    )
    store.release(mine)
    b.begin(store, 2)
    store.commit(b.lease(), [b.reserved(0)])


if __name__ == "__main__":
    with SqliteStore.open(Path(sys.argv[1])) as made:
        fill(made)
