"""What a run starts with: its rows at birth, and child runs that are born and go on with their parent's commits.

And what such a commit came to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from interlock.model.events import Event

Stage = Literal["check", "judge", "approval"]
"""What a gate may hold, in the order in which it is asked."""


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """What `create_run` inserts. `params_json` is canonical JSON; `key` makes runs unique per (key, plan, params)."""

    id: str
    workflow: str
    """The workflow file as the plan names it (`plan.source`)."""
    plan_hash: str
    plan_json: bytes
    params_json: bytes
    created_at: int
    steps: tuple[NewStep, ...]
    key: str | None = None
    parent: str | None = None
    parent_unit: str | None = None
    root: str | None = None
    """Of a child, all three: its parent, its unit there without round and loop, and the run whose lease is its own."""
    forked_from: str | None = None
    fork_step: int = 0


class NewStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step row at birth. `stages` must all pass before it completes: its artifact, or with `each` every item."""

    id: str
    stages: tuple[Stage, ...] = ()
    each: bool = False
    child: bool = False
    """Its work units are child runs."""


class Below(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch changes of one child run; `new` where it is born with it."""

    run_id: str
    events: Sequence[Event]
    new: NewRun | None = None


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a batch.

    `lost`: the lease is another's; only the ends of own attempts were written, those not refused (one that says
    `lost` ends another driver's attempt).
    `refused` names dispatch ids whose start or finish came too late: the attempt was closed by somebody else.
    """

    lost: bool = False
    refused: tuple[str, ...] = ()
