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
from interlock.driver.recording import Recording, Turn
from interlock.driver.replay_executor import ReplayClock, ReplayExecutor, Tally
from interlock.driver.replay_faults import Fault
from interlock.driver.replay_taken import take, taken_in, ungated
from interlock.driver.result import FAILED, OK, exit_code
from interlock.driver.scrubbing import HASH_HIDDEN
from interlock.driver.trees import Lost
from interlock.errors import InterlockError
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.plan import Plan
from interlock.model.run import Snapshot, Step
from interlock.model.states import RunState, StepState, UnitState
from interlock.store.base import StepRow, Store, UnitRow
from interlock.store.sqlite import SqliteStore

_MOST_TURNS = 1_000


class StepReplay(msgspec.Struct, frozen=True, kw_only=True):
    """One step as the replay left it, and as it was recorded (None: the recorded run has no such step)."""

    id: str
    state: str
    reason: str | None
    artifact: bytes | None
    artifact_hash: str | None
    recorded_state: str | None
    recorded_reason: str | None
    recorded_hash: str | None

    @property
    def same(self) -> bool:
        """Tell whether both came to the same."""
        replayed = (self.state, self.reason, self.artifact_hash)
        return replayed == (self.recorded_state, self.recorded_reason, self.recorded_hash)


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay came to. `run_exit_code` is what `interlock run` would have said of it."""

    run_id: str
    state: str
    outcome: str | None
    reason: str | None
    detail: str
    run_exit_code: int
    steps: tuple[StepReplay, ...]
    units: tuple[UnitRow, ...]
    answered: int
    faulted: dict[str, str]
    not_recorded: dict[str, str]
    changed: tuple[str, ...]
    faults_unused: dict[str, str]
    """The faults that no dispatch met, each with why."""
    differences: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """With faults the replayed run's own; without, 0 when nothing differs and 1 when something does."""
        if self.faults_unused:
            return FAILED
        if self.faulted:
            return self.run_exit_code
        return FAILED if self.differences else OK


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
            store=store,
            clock=self._clock,
            host=host,
            alive=lambda _process: True,
            end_leftovers=lambda _run, _processes, _holder: 0,
            executor=lambda _plan, _lease: self._executor,
            settle_lost=lambda _plan, _run, _rows: Lost(),
            map_concurrency=256,
            guard=lambda _loop: contextlib.nullcontext(),
            examine=False,
        )

    def play(self) -> Replay:
        lease = fresh(self._run_id, 1, self._world.host, self._clock)
        at = self._clock.wall_ms()
        taken = taken_in(self._recording, self._plan)
        new = new_run(self._plan, self._run_id, self._params_json, at, None)
        self._store.create_run(msgspec.structs.replace(new, steps=ungated(new.steps, taken)), lease)
        driven = drive(
            self._world,
            self._run_id,
            [lambda snap, now: take(snap, taken, now.at)],
            observe=self._executor.observe,
            lease=lease,
        )
        for _ in range(_MOST_TURNS):
            openings = self._next(driven.snap)
            if not openings:
                break
            driven = self._drive(openings)
        return self._report(driven.snap)

    def _drive(self, openings: Sequence[Opening]) -> Driven:
        return drive(self._world, self._run_id, openings, observe=self._executor.observe)

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
        past = self._recording.units
        wanted = (unit.id for step in snap.steps if step.state is StepState.BLOCKED for unit in tie_breakers(step))
        return any(unit_id in past and past[unit_id].row.reused is not None for unit_id in wanted)

    def _answer_people(self, snap: Snapshot) -> bool:
        """Give the next recorded verdict that is about what waits here now."""
        for row, said in self._recording.approvals:
            step = snap.by_id.get(self._recording.plan.steps[row.step].id)
            if row.id in self._said or step is None or step.state is not StepState.BLOCKED:
                continue
            waiting = [
                unit.id for unit in step.asked if unit.state is UnitState.PENDING and unit.subject == said.subject
            ]
            if not said.override and row.id not in waiting:
                continue
            if said.override and not _judged(step, said.subject):
                continue
            self._said.add(row.id)
            self._clock.reach(said.at)
            target = step.id if said.override else row.id
            payload = {"target": target, "note": said.note, "override": said.override, "by": said.made_by}
            kind = "approve" if said.verdict == "pass" else "reject"
            request = self._store.request(
                self._run_id, "approve" if kind == "approve" else "reject", canon.dumps(payload), said.made_by, said.at
            )
            drive(self._world, self._run_id, [], observe=self._executor.observe, settle_only=True)
            rows = self._store.requests(self._run_id, open_only=False)
            if next(found.outcome for found in rows if found.id == request) == "applied":
                return True
        return False

    # the report

    def _report(self, snap: Snapshot) -> Replay:
        run = self._store.run(self._run_id)
        units = tuple(self._store.units(self._run_id))
        rows = {row.id: row for row in self._recording.steps}
        steps = tuple(self._step(row, rows.get(row.id)) for row in self._store.steps(self._run_id))
        past = self._recording.units
        changed = tuple(
            unit.id
            for unit in units
            if unit.kind == "work"
            and unit.id in past
            and past[unit.id].row.input_hash not in (unit.input_hash, HASH_HIDDEN)
        )
        return Replay(
            run_id=self._run_id,
            state=run.state,
            outcome=run.outcome,
            reason=run.reason,
            detail=run.detail,
            run_exit_code=exit_code(snap.run),
            steps=steps,
            units=units,
            answered=sum(self._tally.answered.values()),
            faulted=self._tally.faulted,
            not_recorded=self._tally.not_recorded,
            changed=changed,
            faults_unused={fault.text: self._why_unmet(fault, units) for fault in self._tally.open_faults},
            differences=tuple(self._differences(steps, units, run.state, run.outcome)),
        )

    def _why_unmet(self, fault: Fault, units: Sequence[UnitRow]) -> str:
        step, _, asked = fault.place.partition(".")
        kind = {"": "work", "check": "gate"}.get(asked, asked)
        items = dict.fromkeys(
            unit.item for unit in units if unit.item and unit.kind == kind and self._plan.steps[unit.step].id == step
        )
        return fault.why_unmet(self._tally.dispatched[fault.place], list(items))

    def _step(self, row: StepRow, recorded: StepRow | None) -> StepReplay:
        return StepReplay(
            id=row.id,
            state=row.state,
            reason=row.reason,
            artifact=self._store.artifact(self._run_id, row.step),
            artifact_hash=row.artifact_hash,
            recorded_state=recorded.state if recorded else None,
            recorded_reason=recorded.reason if recorded else None,
            recorded_hash=recorded.artifact_hash if recorded else None,
        )

    def _differences(
        self, steps: Sequence[StepReplay], units: Sequence[UnitRow], state: str, outcome: str | None
    ) -> list[str]:
        """Say what differs, in the order of the plan; the first line is where to look."""
        found: list[str] = []
        for step in steps:
            if step.same:
                continue
            was = "no such step" if step.recorded_state is None else _words(step.recorded_state, step.recorded_reason)
            now = _words(step.state, step.reason)
            what = f"{was}, now {now}" if was != now else "another artifact"
            found.append(f"step {step.id}: {what}{self._first_unit(units, step.id)}")
        kept = {step.id for step in steps}
        found += [
            f"step {row.id}: recorded, and not in this workflow" for row in self._recording.steps if row.id not in kept
        ]
        run = self._recording.run
        if (run.state, run.outcome) != (state, outcome):
            found.append(f"run: {_words(run.state, run.outcome)}, now {_words(state, outcome)}")
        return found

    def _first_unit(self, units: Sequence[UnitRow], step_id: str) -> str:
        past = self._recording.units
        for unit in units:
            if self._plan.steps[unit.step].id != step_id or unit.kind == "approval":
                continue
            if unit.id not in past:
                return f"; first at unit {unit.id}, which is not recorded"
            row = past[unit.id].row
            if (row.state, row.reason) != (unit.state, unit.reason):
                was, now = _words(row.state, row.reason), _words(unit.state, unit.reason)
                return f"; first at unit {unit.id}: {was}, now {now}"
            if row.result != unit.result:
                return f"; first at unit {unit.id}: another result"
        return ""


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


def _words(state: str, reason: str | None) -> str:
    return f"{state} ({reason})" if reason else state
