"""A run's steps and units in memory, as the loop sees them: values that `Snapshot.apply` changes, and nobody else.

Guarantee: a step's counts always say what a search through its units would find.
"""

from __future__ import annotations

import heapq
from collections import deque

import msgspec

from interlock.model import events as ev
from interlock.model.states import STEP_ENDED, UNIT_ENDED, StepState, UnitState


class Unit:
    """One work, gate or probe unit as the loop sees it. See `events.NewUnit` for the fields it was born with."""

    __slots__ = (
        "asks",
        "attempt",
        "base",
        "dispatch",
        "error",
        "feedback",
        "id",
        "index",
        "item",
        "kind",
        "left",
        "loop",
        "not_before",
        "ordinal",
        "origin",
        "reason",
        "reserve_tokens",
        "result",
        "retries",
        "round",
        "session",
        "state",
        "subject",
        "verdict",
        "worktree",
    )

    def __init__(self, new: ev.NewUnit, kind: ev.UnitKind, round_: int, loop: int) -> None:
        self.ordinal = new.ordinal
        self.id = new.id
        self.index = new.index
        self.item = new.item
        self.subject = new.subject
        self.kind: ev.UnitKind = kind
        self.round = round_
        self.loop = loop
        self.state = UnitState.PENDING
        self.attempt = 0
        self.retries = 0
        self.not_before = 0
        self.dispatch: str | None = None
        self.reason: str | None = None
        self.error = ""
        self.result: bytes | None = None
        self.verdict: ev.Verdict | None = None
        self.feedback = new.feedback
        self.session = new.session
        self.asks = 0
        self.reserve_tokens = 0
        self.base = new.base
        """The commit that its worktrees begin at, once that is known."""
        self.worktree = new.worktree
        """Where its last worktree is or was."""
        self.left: str | None = None
        """The commit that its last attempt's worktree was left at."""
        self.origin: ev.Origin | None = None
        """Of a unit that was taken over: where it was done."""
        if new.reused is not None:
            self.origin = new.reused.origin
            self.state, self.reason = new.reused.state, new.reused.reason
            self.result, self.verdict = new.reused.result, new.reused.verdict
            self.left = new.reused.left

    def waits_until(self, at: int) -> bool:
        """Tell whether the unit is in backoff until exactly then."""
        return self.state is UnitState.WAITING and self.not_before == at


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A child run that is blocked, or waits until `until` (epoch ms)."""

    run_id: str
    reason: str | None
    detail: str
    until: int | None = None


class Step:
    """One step as the loop sees it. `work[i]` is the last unit of item i (of a solo step: `work[0]`)."""

    def __init__(self, index: int, step_id: str, *, child: bool = False) -> None:
        self.index = index
        self.child = child
        """Its work units are runs of their own."""
        self.id = step_id
        self.state = StepState.PENDING
        self.reason: str | None = None
        self.detail = ""
        self.round = 1
        self.loop = 1
        self.artifact: bytes | None = None
        self.artifact_hash: str | None = None
        self.route: tuple[str, ...] = ()
        self.units: list[Unit] = []
        self.work: list[Unit] = []
        self.asked: list[Unit] = []
        """Gate and probe units of the current round and loop."""
        self.ready: deque[Unit] = deque()
        self.backoff: list[tuple[int, int]] = []
        self.running: dict[int, Unit] = {}
        self.held: dict[int, Held] = {}
        """Of a step of child runs: those of `running` whose child cannot move by itself."""
        self.counts: dict[UnitState, int] = dict.fromkeys(UnitState, 0)
        """Of `work` only."""
        self.first_failure: Unit | None = None
        self.base: str | None = None
        """The commit that the first loop's worktrees began at."""
        self.asking = 0
        """Check, judge and probe units that have not ended; those that wait for a person don't count."""

    @property
    def ended(self) -> bool:
        """Tell whether the step can no longer move by itself."""
        return self.state in STEP_ENDED

    @property
    def moving(self) -> bool:
        """Tell whether some open attempt may still come to an end by itself."""
        return len(self.running) > len(self.held)

    @property
    def settled(self) -> bool:
        """Tell whether no work unit can still change without a person or a probe."""
        counts = self.counts
        ended = counts[UnitState.COMPLETED] + counts[UnitState.FAILED] + counts[UnitState.NOT_RUN]
        return ended == len(self.work)


def move_unit(step: Step, unit: Unit, state: UnitState) -> None:
    """Change a unit's state and the step's counts together."""
    if unit.kind == "work":
        step.counts[unit.state] -= 1
        step.counts[state] += 1
    elif unit.kind != "approval":
        step.asking += (state not in UNIT_ENDED) - (unit.state not in UNIT_ENDED)
    unit.state = state


def note_tree(step: Step, unit: Unit, tree: ev.Tree) -> None:
    """Remember where the unit's worktree began and was left; the first one says so for the whole step."""
    unit.base = unit.base or tree.base
    unit.left = tree.commit or tree.base
    if step.base is None and unit.kind == "work" and unit.loop == 1:
        step.base = tree.base


def leave_ready(step: Step, unit: Unit) -> None:
    """Take the unit out of those that may start."""
    if step.ready and step.ready[0] is unit:
        step.ready.popleft()
    else:
        step.ready.remove(unit)


def drop_stale(step: Step) -> None:
    """Rebuild the heap's head: entries of units that left backoff go when they reach the top."""
    backoff = step.backoff
    while backoff and not step.units[backoff[0][1]].waits_until(backoff[0][0]):
        heapq.heappop(backoff)


def queue(step: Step, unit: Unit, not_before: int | None) -> None:
    """Let the unit wait for its start where its state says so: at once, or from a moment on."""
    if unit.state is UnitState.PENDING:
        step.ready.append(unit)
    elif unit.state is UnitState.WAITING:
        unit.not_before = not_before or 0
        heapq.heappush(step.backoff, (unit.not_before, unit.ordinal))
