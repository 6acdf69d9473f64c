"""What a fork may take over: the old run's completed units by the hash of their input, and its gates' verdicts.

Guarantee: nothing is in here that did not complete in the old run, and no approval.
"""

from __future__ import annotations

import msgspec

from interlock.model.events import Reused, UnitKind

WorkKey = tuple[str, str, str]
"""Step id, unit id without round and loop, input hash."""
VerdictKey = tuple[str, UnitKind, bytes | None, str, str]
"""Step id, kind, item, hash of what was judged, and hash of who or what judged it."""


class Taken(msgspec.Struct, frozen=True):
    """What a completed unit left, and the agent session in which it was done."""

    reused: Reused
    session: str | None = None


class Reuse(msgspec.Struct, frozen=True):
    """The index, of the run of that id."""

    run: str
    work: dict[WorkKey, Taken]
    verdicts: dict[VerdictKey, tuple[Taken | None, ...]]
    """The answers that one subject got in the last loop in which it was asked about, in the order of those asked.

    None stands for one that gave none.
    """
