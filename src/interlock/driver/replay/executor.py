"""An executor that answers from a recorded run: nothing is begun, no file and no engine is touched.

Time is a number here: the clock stands at what the record says, and jumps to the next thing that is due, so that
no backoff is waited for, and answers come in the recorded order. A family has one executor, as in a run: a unit is
looked up in the recording of the run that it belongs to, and counted under its path.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from interlock.decide.children import DEGRADED
from interlock.decide.now import Now
from interlock.decide.schedule import next_due
from interlock.dispatch.base import Job, Outcome, Report, Request
from interlock.driver.clock import StillClock
from interlock.driver.replay.faults import At, Dispatched, Fault, place_of
from interlock.driver.replay.parts import Part, part_of, under_way
from interlock.driver.replay.recording import Past, Recording, outcome
from interlock.model import canon
from interlock.model.actions import Ahead
from interlock.model.events import Event, Process
from interlock.model.plan import Plan
from interlock.model.run import Snapshot, Step, Unit
from interlock.model.states import Reason

_NEVER: Final = 1 << 62


class ReplayClock(StillClock):
    """Time that goes by only where a run would wait."""

    def reach(self, wall_ms: int) -> None:
        """Move on to that moment; never back."""
        self.advance(max(0, wall_ms - self.wall))


class Tally:
    """What was answered, over all drives of one replay: by units' paths, and `dispatched` by places."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.answered: Counter[str] = Counter()
        self.not_recorded: dict[str, str] = {}
        self.faulted: dict[str, str] = {}
        self.open_faults = list(faults)
        self.dispatched: Dispatched = Counter()
        self.held: set[str] = set()


class ReplayExecutor:
    """A body of `driver.executor.Executor`."""

    def __init__(self, recording: Recording, clock: ReplayClock, tally: Tally) -> None:
        self._recording = recording
        self._clock = clock
        self._tally = tally
        self._root: Snapshot | None = None
        self._parts: dict[str, Part] = {}
        self._ends: list[int] = []
        """When the recorded driver ended child runs whose time was over."""
        self._due: list[tuple[int, int, Outcome]] = []
        self._order = 0

    def watch(self, snap: Snapshot, now: Now) -> Sequence[Event]:  # noqa: ARG002 - an opening's
        """Keep the family in sight, by an opening that changes nothing: what it waits for decides how far time jumps."""
        if snap.above is None:
            self._root = snap
            self._parts.clear()
        return ()

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
        moment = min(self._moments(now), default=_NEVER)
        if moment < first:
            self._clock.reach(moment)
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
                aborted = Outcome(dispatch=ended.dispatch, status="aborted", reason=Reason.ABORTED)
                kept.append((0, order, aborted))
            else:
                kept.append((at, order, ended))
        heapq.heapify(kept)
        self._due = kept

    def tidy(self, steps: Collection[int]) -> list[str]:  # noqa: ARG002 - the protocol's
        """Nothing is left behind here."""
        return []

    def wake(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Nothing was opened here."""

    def _ended(self, ended: Outcome) -> Outcome:
        now = self._clock.wall_ms()
        return msgspec.structs.replace(ended, ended_at=now, started_at=min(ended.started_at or now, now))

    def _moments(self, now: int) -> Iterator[int]:
        """Yield what is waited for: the ends of backoffs, of quotas, and of child runs' time."""
        for snap in () if self._root is None else under_way(self._root):
            due = next_due(snap, now)
            if due is not None:
                yield due
            if snap.run.wait_until is not None and snap.run.wait_until > now:
                yield snap.run.wait_until
        yield from (at for at in self._ends if at > now)

    def _part(self, run_id: str) -> Part:
        if run_id not in self._parts and self._root is not None:
            snap = next(snap for snap in under_way(self._root) if snap.run.id == run_id)
            self._parts[run_id] = part_of(self._recording, snap)
        return self._parts[run_id]

    # answers

    def instead(self, snap: Snapshot, step: Step, unit: Unit) -> Outcome | None:
        """Return what a unit came to whose child run is not opened: it was taken over, isn't recorded, or is struck."""
        part, now = part_of(self._recording, snap), self._clock.wall_ms()
        fault = self._strike(part.units + unit.id, (part.steps + step.id, part.items), unit.item)
        dispatch = unit.dispatch or ""
        if fault is not None:
            return fault.outcome(dispatch, now)
        if part.recording is None or part.recording.child(unit.id) is not None:
            return None
        past = part.recording.units.get(unit.id)
        if past is not None and past.unanswered and past.row.kind == "work":
            # it never had its turn in the recorded run, and may not have it now
            return None
        if past is not None and past.row.reused is not None and past.row.state == "completed":
            self._tally.answered[part.units + unit.id] += 1
            ended = Outcome(dispatch=dispatch, status="ok", is_json=True, started_at=now, ended_at=now)
            short = DEGRADED if past.row.reason == DEGRADED else ""
            return msgspec.structs.replace(ended, output=past.row.result or b"null", error=short)
        what = "unit" if past is None else "child run of unit"
        text = f"the recorded run has no {what} {part.units}{unit.id}"
        return self._not_recorded(part.units + unit.id, text, dispatch)

    def _answer(self, request: Request) -> tuple[int, Outcome]:
        """Return when the dispatch ends, and how."""
        tally, now = self._tally, self._clock.wall_ms()
        part = self._part(request.job.run_id)
        path = part.units + request.unit_id
        fault = self._strike(path, (part.steps + place_of(request), part.items), request.item_json)
        if fault is not None:
            return now, fault.outcome(request.dispatch, now)
        past = None if part.recording is None else part.recording.units.get(request.unit_id)
        number = tally.answered[path]
        why = _unknown(past, request, path)
        found = None
        if part.recording is not None and past is not None and not why:
            found = outcome(part.recording, past, number, request, now)
        if past is not None and found is not None:
            tally.answered[path] += 1
            due = past.replies[number].due if number < len(past.replies) else past.row.ended_at
            return max(now, due or now), found
        if self._never_answered(part, past, path):
            return _NEVER, Outcome(dispatch=request.dispatch, status="aborted", reason=Reason.ABORTED)
        text = why or f"the recorded run has {number} answers of unit {path}, and this is one more"
        return now, self._not_recorded(path, text, request.dispatch)

    def _never_answered(self, part: Part, past: Past | None, path: str) -> bool:
        """Tell whether something else ended the recorded run before this answer, which may come about here too."""
        end = self._recorded_end(part)
        if end is not None:
            self._ends.append(end)
            return True
        recorded = part.recording
        idle = recorded is None or recorded.run.state == "failed" if past is None else past.unanswered
        if idle and path not in self._tally.held:
            self._tally.held.add(path)
            return True
        return False

    def _recorded_end(self, part: Part) -> int | None:
        """Return when the record says that the time of this child run was over, if that is still to come."""
        snap = part.snap
        while snap.above is not None and snap.place is not None:
            unit = snap.place[1]
            above = part_of(self._recording, snap.above)
            past = None if above.recording is None else above.recording.units.get(unit.id)
            for reply in () if past is None else past.replies:
                attempt = reply.attempt
                late = attempt.reason == Reason.TIMEOUT and (attempt.ended_at or 0) > self._clock.wall_ms()
                if late and attempt.number == unit.attempt:
                    return attempt.ended_at
            snap = snap.above
        return None

    def _not_recorded(self, path: str, text: str, dispatch: str) -> Outcome:
        self._tally.not_recorded[path] = text
        now, error = self._clock.wall_ms(), f"not recorded: {text}"
        reason = Reason.DISPATCH_ERROR
        return Outcome(dispatch=dispatch, status="failed", reason=reason, error=error, started_at=now, ended_at=now)

    def _strike(self, path: str, at: At, item: bytes | None) -> Fault | None:
        """Count a dispatch, and return the fault that strikes it."""
        tally = self._tally
        tally.dispatched[at] += 1
        for fault in tally.open_faults:
            if fault.fits(at, item, tally.dispatched):
                tally.open_faults.remove(fault)
                tally.faulted[path] = fault.text
                return fault
        return None


def _unknown(past: Past | None, request: Request, path: str) -> str:
    if past is None:
        return f"the recorded run has no unit {path}"
    if past.row.kind in ("gate", "judge"):
        asked = canon.sha256(request.job.artifact_json or b"null")
        if asked != past.row.subject:
            return f"{path} was asked about another artifact in the recorded run"
    return ""
