"""The time for which a driver that died had driven a run, as far as the journal does not count it yet."""

from __future__ import annotations

import msgspec

from interlock.decide.now import Now
from interlock.driver.family import Opening
from interlock.model import events as ev
from interlock.model.run import Lease, Snapshot
from interlock.model.states import RunState
from interlock.store.base import Loaded


def lost_ms(loaded: Loaded, dead: Lease | None) -> int:
    """Return how long a run was driven under the `dead` lease until it was last heard of, beyond what is counted.

    A driver that could not write how it left has lost time too, though it released its lease.
    """
    if dead is None or loaded.run.state != RunState.ACTIVE:
        return 0
    seen = loaded.last_at if dead.released else max(loaded.last_at, dead.renewed_ms)
    return max(0, seen - max(loaded.counted_at, dead.since_ms))


def with_lost(loaded: Loaded, dead: Lease | None) -> tuple[Loaded, list[Opening]]:
    """Count the lost time in, and return what journals it: another crash must not lose it again."""
    lost = lost_ms(loaded, dead)
    if not lost:
        return loaded, []
    driven_ms = loaded.run.driven_ms + lost

    def opening(snap: Snapshot, now: Now) -> list[ev.Event]:
        return [ev.RunMoved(at=now.at, state=snap.run.state, driven_ms=driven_ms)]

    run = msgspec.structs.replace(loaded.run, driven_ms=driven_ms)
    return msgspec.structs.replace(loaded, run=run), [opening]
