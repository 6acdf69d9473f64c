"""What verbs are told of leases when they must do nothing beside a driver, and what they answer then.

Whether a lease is held is the caller's to say, since it takes a clock and a look at processes; it is asked inside the
transaction, so that nobody takes a lease between the look and the deed.
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.errors import StoreError
from interlock.model.run import Lease

Held = Callable[[Lease], bool]


def unreleased(lease: Lease) -> bool:
    """Take every lease for held that was not released, whatever became of its holder."""
    return not lease.released


class AlreadyRunningError(StoreError):
    """Another run of the workflow is driven; `run_id` says which."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            "already-running",
            f"run {run_id} of this workflow is under way",
            f"watch it: interlock events {run_id} --follow",
        )
        self.run_id = run_id


def driven_error(what: str, run_id: str, lease: Lease) -> StoreError:
    """Return the error for a removal beside a driver; `what` is not removed since `run_id` is driven."""
    return StoreError(
        "run-driven",
        f"{what} driven by pid {lease.pid} on {lease.host}",
        f"watch it: interlock events {run_id} --follow; stop it: interlock abandon {run_id}",
    )
