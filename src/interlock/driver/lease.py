"""Who drives a run: taking, judging and keeping the lease.

A lease is claimable when it was released, when its holder is provably dead (same boot and PID namespace,
process gone), or when it expired: by the boot clock on one boot, by the wall clock across boots, where one
that claims more than twice the term is bogus. No command is ever needed to unlock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

import msgspec

from interlock.dispatch.processes.identity import alive, identify, pid_namespace
from interlock.driver.clock import Clock
from interlock.errors import InterlockError, LeaseHeldError, StoreError, UsageError
from interlock.model.events import Process
from interlock.model.run import Lease
from interlock.model.states import RUN_ENDED
from interlock.store.base import Store

TERM_MS: Final = 90_000
RENEW_MS: Final = 20_000
_TRIES: Final = 5
HELD: Final = "lease-held"
"""Code of the error of who never had the lease."""
LOST: Final = "lease-lost"
"""Code of the error of who had it, and drove."""


class Host(msgspec.Struct, frozen=True):
    """Where and as whom this driver runs."""

    process: Process
    pid_namespace: str
    name: str


def this_host() -> Host:
    """Return where and as whom this process runs. Raises InterlockError where it cannot be told from others."""
    process = identify(os.getpid())
    if process is None:
        raise InterlockError("no-identity", "this process cannot be told from others here", "see interlock doctor")
    return Host(process, pid_namespace(), os.uname().nodename)


def claimable(lease: Lease, host: Host, clock: Clock, alive: Callable[[Process], bool]) -> bool:
    """Tell whether another driver may take the lease over."""
    if lease.released:
        return True
    if lease.boot_id != host.process.boot_id:
        left = lease.expires_ms - clock.wall_ms()
        return left <= 0 or left > 2 * TERM_MS
    if lease.expires_boot_ms <= clock.boot_ms():
        return True
    if lease.pid_namespace != host.pid_namespace:
        return False
    return not alive(Process(lease.pid, lease.start_ticks, lease.boot_id))


def held_now(clock: Clock) -> Callable[[Lease], bool]:
    """Return what tells whether a live driver holds a lease."""
    host = this_host()
    return lambda lease: not claimable(lease, host, clock, alive)


def fresh(run_id: str, term: int, host: Host, clock: Clock) -> Lease:
    """Return a new lease of ours."""
    now, boot = clock.wall_ms(), clock.boot_ms()
    return Lease(
        run_id=run_id,
        holder=os.urandom(8).hex(),
        term=term,
        pid=host.process.pid,
        start_ticks=host.process.start_ticks,
        boot_id=host.process.boot_id,
        pid_namespace=host.pid_namespace,
        host=host.name,
        since_ms=now,
        renewed_ms=now,
        expires_ms=now + TERM_MS,
        expires_boot_ms=boot + TERM_MS,
    )


def renewed(lease: Lease, clock: Clock) -> Lease:
    """Return the lease with its times moved on."""
    now, boot = clock.wall_ms(), clock.boot_ms()
    return msgspec.structs.replace(lease, renewed_ms=now, expires_ms=now + TERM_MS, expires_boot_ms=boot + TERM_MS)


def renewal_due(lease: Lease, clock: Clock) -> bool:
    """Tell whether it is time to renew the lease."""
    return clock.boot_ms() >= lease.expires_boot_ms - TERM_MS + RENEW_MS


def acquire(
    store: Store, run_id: str, host: Host, clock: Clock, alive: Callable[[Process], bool]
) -> tuple[Lease, Lease]:
    """Take the run's lease, and return it with the one before. Raises LeaseHeldError naming the holder."""
    held: Lease | None = None
    for _ in range(_TRIES):
        held = store.read_lease(run_id)
        if held is None:
            raise UsageError("run-not-found", f"no run '{run_id}' in this journal", "see them: interlock list")
        if not claimable(held, host, clock, alive):
            break
        lease = fresh(run_id, held.term + 1, host, clock)
        if store.take_lease(lease, held):
            return lease, held
    raise held_error(run_id, held)


@contextmanager
def kept_off(store: Store, run_id: str, clock: Clock) -> Iterator[bool]:
    """Keep drivers off a run for a moment; False where one holds it. But for a risen term its lease then is as before."""
    try:
        mine, before = acquire(store, run_id, this_host(), clock, alive)
    except LeaseHeldError:
        yield False
        return
    try:
        yield True
    finally:
        store.take_lease(msgspec.structs.replace(before, term=mine.term + 1), mine)


def held_error(run_id: str, held: Lease | None, code: str = HELD) -> LeaseHeldError:
    """Return the error that tells who drives the run."""
    if held is None:
        return LeaseHeldError(code, f"run {run_id} is being taken over by another driver", "try again")
    since, until = _clock_text(held.since_ms), _clock_text(held.expires_ms)
    return LeaseHeldError(
        code,
        f"run {run_id} is driven by pid {held.pid} on {held.host} since {since}, lease until {until}",
        f"watch it: interlock events {run_id} --follow; stop it for good: interlock abandon {run_id}",
    )


def lost_error(store: Store, run_id: str) -> LeaseHeldError:
    """Return the error that tells who took the run over, and what has become of it since."""
    try:
        with store.view():
            taker, run = store.read_lease(run_id), store.run(run_id)
    except StoreError:
        return held_error(run_id, None, LOST)
    if taker is None:
        return held_error(run_id, None, LOST)
    since = f"run {run_id} was taken over by pid {taker.pid} on {taker.host} at {_clock_text(taker.since_ms)}"
    if run.state in RUN_ENDED:
        outcome = ", degraded" if run.outcome == "degraded" else ""
        return LeaseHeldError(
            LOST, f"{since} and has since ended as {run.state}{outcome}", f"see it: interlock status {run_id}"
        )
    left = f", which left it {run.state}" if taker.released else ""
    return LeaseHeldError(LOST, f"{since}{left}", f"see where it stands: interlock status {run_id}")


def _clock_text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
