"""An executor that answers from a recorded run: nothing is begun, no file and no engine is touched.

Time is a number here: the clock stands at what the record says, and jumps to the next thing that is due, so that
no backoff is waited for, and answers come in the recorded order.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from interlock.decide.schedule import next_due
from interlock.dispatch.base import Job, Outcome, Report, Request
from interlock.driver.clock import StillClock
from interlock.driver.recording import Past, Recording, outcome
from interlock.driver.replay_faults import Fault, place_of
from interlock.model import canon
from interlock.model.actions import Ahead
from interlock.model.events import Event, Process
from interlock.model.plan import Plan
from interlock.model.run import Snapshot
from interlock.model.states import Reason

_NEVER: Final = 1 << 62


class ReplayClock(StillClock):
    """Time that goes by only where a run would wait."""

    def reach(self, wall_ms: int) -> None:
        """Move on to that moment; never back."""
        self.advance(max(0, wall_ms - self.wall))


class Tally:
    """What was answered, over all drives of one replay."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.answered: Counter[str] = Counter()
        self.not_recorded: dict[str, str] = {}
        self.faulted: dict[str, str] = {}
        self.open_faults = list(faults)
        self.dispatched: Counter[str] = Counter()
        self.held: set[str] = set()
        self.replies = 0


class ReplayExecutor:
    """A body of `driver.executor.Executor`."""

    def __init__(self, recording: Recording, clock: ReplayClock, tally: Tally) -> None:
        self._recording = recording
        self._clock = clock
        self._tally = tally
        self._snap: Snapshot | None = None
        self._due: list[tuple[int, int, Outcome]] = []
        self._order = 0

    def observe(self, _events: Sequence[Event], snap: Snapshot) -> None:
        """Keep the run in sight: what it waits for decides how far the clock may jump."""
        self._snap = snap

    def prepare(self, plan: Plan, ended: Collection[str]) -> None:
        """Nothing has to be set up here."""

    def capacity(self, job: Job, wanted: int, ahead: int = 0) -> list[Process | None]:  # noqa: ARG002 - the protocol's
        """Offer all."""
        return [None] * wanted

    def ahead(self, run_id: str) -> dict[int, Ahead]:  # noqa: ARG002 - the protocol's
        """Nothing waits in line here."""
        return {}

    def recall(self, run_id: str) -> None:
        """Nothing waits in line here."""

    def start(self, requests: list[Request]) -> None:
        """Look the answers up."""
        for request in requests:
            at, ended = self._answer(request)
            self._order += 1
            heapq.heappush(self._due, (at, self._order, ended))

    def wait(self, timeout_s: float | None) -> list[Report]:
        """Jump to what comes next: an answer, or the end of a backoff."""
        now = self._clock.wall_ms()
        first = self._due[0][0] if self._due else _NEVER
        backoff = None if self._snap is None else next_due(self._snap, now)
        if backoff is not None and backoff < first:
            self._clock.reach(backoff)
            return []
        if not self._due:
            self._clock.reach(now + int((timeout_s or 0.0) * 1000))
            return []
        at, _, ended = heapq.heappop(self._due)
        self._clock.reach(0 if at == _NEVER else at)
        found: list[Report] = [self._ended(ended)]
        while self._due and self._due[0][0] == at != _NEVER:
            found.append(self._ended(heapq.heappop(self._due)[2]))
        return found

    def cancel(self, dispatches: list[str] | None, grace_s: float) -> None:  # noqa: ARG002 - the protocol's
        """End what was not answered yet."""
        kept: list[tuple[int, int, Outcome]] = []
        for at, order, ended in self._due:
            if dispatches is None or ended.dispatch in dispatches:
                kept.append((0, order, Outcome(dispatch=ended.dispatch, status="aborted", reason=Reason.ABORTED)))
            else:
                kept.append((at, order, ended))
        heapq.heapify(kept)
        self._due = kept

    def tidy(self, steps: Collection[int]) -> None:
        """Nothing is left behind here."""

    def wake(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Nothing was opened here."""

    def _ended(self, ended: Outcome) -> Outcome:
        now = self._clock.wall_ms()
        return msgspec.structs.replace(ended, ended_at=now, started_at=min(ended.started_at or now, now))

    def _answer(self, request: Request) -> tuple[int, Outcome]:
        """Return when the dispatch ends, and how."""
        tally, now = self._tally, self._clock.wall_ms()
        tally.replies += 1
        tally.dispatched[place_of(request)] += 1
        fault = self._fault(request)
        if fault is not None:
            return now, fault.outcome(request.dispatch, now)
        past = self._recording.units.get(request.unit_id)
        if past is not None and past.unanswered and request.unit_id not in tally.held:
            # it never had its turn in the recorded run: it gets an answer only if nothing else ends the run before
            tally.held.add(request.unit_id)
            return _NEVER, Outcome(dispatch=request.dispatch, status="aborted", reason=Reason.ABORTED)
        number = tally.answered[request.unit_id]
        why = self._unknown(past, request)
        found = None if past is None or why else outcome(self._recording, past, number, request, now)
        if past is None or found is None:
            text = why or f"the recorded run has {number} answers of unit {request.unit_id}, and this is one more"
            tally.not_recorded[request.unit_id] = text
            failed = Outcome(
                dispatch=request.dispatch, status="failed", reason=Reason.DISPATCH_ERROR, error=f"not recorded: {text}"
            )
            return now, failed
        tally.answered[request.unit_id] += 1
        ended = past.replies[number].attempt.ended_at if number < len(past.replies) else past.row.ended_at
        return max(now, ended or now), found

    def _fault(self, request: Request) -> Fault | None:
        tally = self._tally
        for fault in tally.open_faults:
            if fault.fits(request, tally.dispatched[fault.place]):
                tally.open_faults.remove(fault)
                tally.faulted[request.unit_id] = fault.text
                return fault
        return None

    def _unknown(self, past: Past | None, request: Request) -> str:
        if past is None:
            return f"the recorded run has no unit {request.unit_id}"
        if past.row.kind in ("gate", "judge"):
            asked = canon.sha256(request.job.artifact_json or b"null")
            if asked != past.row.subject:
                return f"{request.unit_id} was asked about another artifact in the recorded run"
        return ""
