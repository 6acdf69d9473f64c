"""Play a recorded run again, in a throwaway journal, and say where the replay differs from the record."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from interlock.decide import reopen
from interlock.decide.gate import tie_breakers
from interlock.decide.now import Now
from interlock.driver.asking import raising
from interlock.driver.birth import new_run
from interlock.driver.drive import Driven, World, drive
from interlock.driver.family import Opening
from interlock.driver.lease import Host, fresh
from interlock.driver.replay.executor import ReplayClock, ReplayExecutor, Tally
from interlock.driver.replay.faults import Fault
from interlock.driver.replay.parts import Part, part_of, under_way
from interlock.driver.replay.recording import Recording, Turn
from interlock.driver.replay.report import Replay, StepReplay, report
from interlock.driver.replay.taken import take, taken_in, ungated
from interlock.driver.signals import Interrupts
from interlock.driver.trees import Lost
from interlock.errors import InterlockError
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.plan import Plan
from interlock.model.run import Lease, Snapshot, Step
from interlock.model.states import RunState, StepState, UnitState
from interlock.store.base import ApprovalRow, RequestKind, Store, UnitRow
from interlock.store.sqlite import SqliteStore

_MOST_TURNS = 1_000


def replay(recording: Recording, plan: Plan, params_json: bytes, faults: Sequence[Fault], host: Host) -> Replay:
    """Run `plan` with the recorded answers. Raises InterlockError; nothing is left on disk."""
    # what only says where the run was frozen is the record's, so that it makes no input differ
    plan = msgspec.structs.replace(plan, project=recording.plan.project)
    with (
        tempfile.TemporaryDirectory(prefix="interlock-replay-") as folder,
        contextlib.closing(SqliteStore.open(Path(folder, "journal.db"))) as store,
    ):
        return _Player(recording, plan, params_json, faults, host, store).play()


class _Player:
    def __init__(
        self,
        recording: Recording,
        plan: Plan,
        params_json: bytes,
        faults: Sequence[Fault],
        host: Host,
        store: Store,
    ) -> None:
        self._recording = recording
        self._plan = plan
        self._params_json = params_json
        self._store = store
        self._run_id = recording.run.id
        self._clock = ReplayClock(recording.run.created_at, 1_000_000)
        self._tally = Tally(faults)
        self._turns = list(recording.turns)
        self._said: set[str] = set()
        self._executor = ReplayExecutor(recording, self._clock, self._tally)
        self._world = World(
            root=Path(plan.project.root),
            store=store,
            clock=self._clock,
            host=host,
            alive=lambda _process: True,
            end_leftovers=lambda _run, _processes, _term: 0,
            executor=lambda _plan, _lease: self._executor,
            settle_lost=lambda _plan, _run, _rows: Lost(),
            map_concurrency=256,
            guard=lambda: contextlib.nullcontext(Interrupts()),
            examine=False,
            instead=self._executor.instead,
        )

    def play(self) -> Replay:
        lease = fresh(self._run_id, 1, self._world.host, self._clock)
        at = self._clock.wall_ms()
        taken = taken_in(self._recording, self._plan)
        new = new_run(self._plan, self._run_id, self._params_json, at, None)
        self._store.create_run(msgspec.structs.replace(new, steps=ungated(new.steps, taken)), lease)
        driven = self._drive([lambda snap, now: take(snap, taken, now.at)], lease)
        for _ in range(_MOST_TURNS):
            openings = self._next(driven.snap)
            if not openings:
                break
            driven = self._drive(openings)
        return report(self._store, self._recording, driven.snap, self._tally)

    def _drive(self, openings: Sequence[Opening], lease: Lease | None = None, *, settle_only: bool = False) -> Driven:
        return drive(
            self._world,
            self._run_id,
            [self._executor.watch, *openings],
            observe=lambda _events, _snap: None,
            lease=lease,
            settle_only=settle_only,
        )

    # what people did, and time

    def _next(self, snap: Snapshot) -> list[Opening]:
        """Return how the run goes on where it stands, as it did in the record; nothing when it is over."""
        state = snap.run.state
        if state is RunState.COMPLETED:
            return []
        if state is RunState.WAITING and snap.run.wait_until is not None:
            self._clock.reach(snap.run.wait_until)
            return [reopen.go_on]
        if self._answer_people(snap) or self._tie_was_broken(snap):
            return [reopen.go_on]
        wanted = ("reopen",) if state in (RunState.FAILED, RunState.ABANDONED) else ("reopen", "go_on")
        while self._turns:
            turn = self._turns.pop(0)
            if turn.kind in wanted:
                self._clock.reach(turn.at)
                return _openings(turn)
        return []

    def _tie_was_broken(self, snap: Snapshot) -> bool:
        """Tell whether a tie is here that the record, a fork, took over with one more judge and never stopped at."""
        return any(_is_broken(part_of(self._recording, one)) for one in under_way(snap))

    def _answer_people(self, snap: Snapshot) -> bool:
        """Give the next recorded verdict that is about what waits here now, in this run or below it."""
        parts = [part_of(self._recording, one) for one in under_way(snap)]
        said = [
            (part, row, verdict)
            for part in parts
            if part.recording is not None
            for row, verdict in part.recording.approvals
        ]
        for part, row, verdict in sorted(said, key=lambda one: one[2].at):
            if part.units + row.id not in self._said and _waits(part, row, verdict) and self._say(part, row, verdict):
                return True
        return False

    def _say(self, part: Part, row: UnitRow, said: ApprovalRow) -> bool:
        """Ask it of the run as a person did; tell whether it was taken."""
        self._said.add(part.units + row.id)
        self._clock.reach(said.at)
        run_id = part.snap.run.id
        target = _step_of(part, row) if said.override else row.id
        payload = {"target": target, "note": said.note, "override": said.override, "by": said.made_by}
        kind: RequestKind = "approve" if said.verdict == "pass" else "reject"
        request = self._store.request(run_id, kind, canon.dumps(payload), said.made_by, said.at)
        self._drive([], settle_only=True)
        rows = self._store.requests(run_id, open_only=False)
        return next(found.outcome for found in rows if found.id == request) == "applied"


def _step_of(part: Part, row: UnitRow) -> str:
    """Return the id of the recorded unit's step."""
    return "" if part.recording is None else part.recording.plan.steps[row.step].id


def _waits(part: Part, row: UnitRow, said: ApprovalRow) -> bool:
    """Tell whether that waits for a person here which the verdict was about."""
    step = part.snap.by_id.get(_step_of(part, row))
    if step is None or step.state is not StepState.BLOCKED:
        return False
    if said.override:
        return _judged(step, said.subject)
    return any(
        unit.id == row.id and unit.state is UnitState.PENDING and unit.subject == said.subject for unit in step.asked
    )


def _is_broken(part: Part) -> bool:
    past = {} if part.recording is None else part.recording.units
    blocked = [step for step in part.snap.steps if step.state is StepState.BLOCKED]
    wanted = (unit.id for step in blocked for unit in tie_breakers(step))
    return any(unit_id in past and past[unit_id].row.reused is not None for unit_id in wanted)


def _judged(step: Step, subject: str) -> bool:
    return step.reason in ("gate_rejected", "check_unavailable", "judge_unavailable") and any(
        unit.subject == subject for unit in step.asked
    )


def _openings(turn: Turn) -> list[Opening]:
    if turn.kind == "go_on":
        return [reopen.go_on]
    openings: list[Opening] = []
    if turn.raises:
        openings.append(_raises(turn.raises))
    if turn.loops:
        openings.append(_grant(turn.loops))
    return [*openings, reopen.reopen]


def _raises(raises: dict[str, float]) -> Opening:
    wanted = raising(raises)

    def opening(snap: Snapshot, now: Now) -> Sequence[ev.Event]:
        # a changed workflow may have other ceilings, which the recorded amendment does not raise
        with contextlib.suppress(InterlockError):
            return wanted(snap, now)
        return ()

    return opening


def _grant(loops: int) -> Opening:
    def opening(snap: Snapshot, now: Now) -> Sequence[ev.Event]:
        return reopen.grant(snap, now, loops)

    return opening


__all__ = ["Replay", "StepReplay", "replay"]
