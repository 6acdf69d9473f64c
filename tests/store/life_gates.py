"""A run's life at random, continued: gates of every shape, loops, verdicts of people, and completion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.store import builders as b
from tests.store import oracle
from tests.store.life import Life, picks

from interlock.model import canon
from interlock.model import events as ev
from interlock.model.states import StepState
from interlock.store.base import StepRow, UnitRow

ARTIFACTS = (None, b"1", b'"other"')
artifacts = st.sampled_from(ARTIFACTS)
kinds = st.sampled_from(["gate", "judge", "approval"])
verdicts = st.sampled_from(["pass", "reject"])
answers = st.lists(st.sampled_from(["pass", "pass", "reject", None]), min_size=3, max_size=3)


class GatedLife(Life):
    """Whatever the journal lets complete is what the oracle, which knows no SQL, lets complete."""

    def asked(
        self, step: StepRow, kind: ev.UnitKind, subjects: Sequence[oracle.Subject], each: int = 1
    ) -> ev.UnitsAdded:
        first = len(self.of(step))
        all_of_it = [subject for subject in subjects for _ in range(each)]
        units = tuple(b.new_unit(first + n, index, tagged, kind) for n, (index, tagged) in enumerate(all_of_it))
        place: dict[str, Any] = {"round": step.round, "loop": step.loop, "state": StepState.GATING}
        return ev.UnitsAdded(at=self.at(), step=step.step, kind=kind, units=units, **place)

    def people(self) -> list[UnitRow]:
        """The questions that wait for a person, or were answered by one."""
        return [unit for unit in self.units() if unit.kind == "approval"]

    def at_work(self, pick: int, *states: str) -> StepRow | None:
        """A step in one of these states, if there is one."""
        steps = [step for step in self.store.steps(b.RUN) if step.state in states]
        return steps[pick % len(steps)] if steps else None

    @precondition(lambda self: self.active())
    @rule(pick=picks, artifact=artifacts, kind=kinds, judges=st.integers(1, 3))
    def ask_gate(self, pick: int, artifact: bytes | None, kind: ev.UnitKind, judges: int) -> None:
        step = self.at_work(pick, "running", "gating")
        if step is not None:
            each = judges if kind == "judge" else 1
            self.legal(self.asked(step, kind, oracle.subjects(step, self.of(step), artifact), each))

    @precondition(lambda self: self.active())
    @rule(
        pick=picks,
        artifact=artifacts,
        said=answers,
        left_out=kinds | st.sampled_from(["nothing", "completion"]),
        override=st.booleans(),
    )
    def go_through_the_gate(
        self,
        pick: int,
        artifact: bytes | None,
        said: list[ev.Verdict | None],
        left_out: str,
        override: bool,  # noqa: FBT001 - hypothesis names its arguments
    ) -> None:
        """As a driver does it: finish the work, ask stage by stage, complete; at random something is left out."""
        self.start_step(pick, 2)
        step = self.at_work(pick, "running", "gating")
        if step is None:
            return
        self.carry_out([unit for unit in self.free() if unit.step == step.step], "completed", "pass")
        subjects = oracle.subjects(step, self.of(step), artifact)
        for kind in ("gate", "judge", "approval"):
            if kind != left_out:
                self.ask_and_answer(step, kind, subjects, said, override=override)
        if left_out != "completion":
            self.complete_step(step.step, artifact)

    def ask_and_answer(
        self,
        step: StepRow,
        kind: ev.UnitKind,
        subjects: Sequence[oracle.Subject],
        said: Sequence[ev.Verdict | None],
        *,
        override: bool,
    ) -> None:
        event = self.asked(step, kind, subjects, each=3 if kind == "judge" else 1)
        self.legal(event)
        born = {unit.ordinal for unit in event.units}
        for n, unit in enumerate(unit for unit in self.of(step) if unit.ordinal in born):
            verdict = said[n % len(said)]
            if verdict is None:
                continue
            if kind == "approval":
                self.legal(b.approved(unit.ordinal, unit.subject or "", verdict, step.step, override=override))
            else:
                self.carry_out([unit], "completed", verdict)

    @rule(pick=picks, verdict=verdicts, override=st.booleans())
    def approve(self, pick: int, verdict: ev.Verdict, override: bool) -> None:  # noqa: FBT001
        if self.active() and not self.people():
            # a question to a person is rare by chance, and much may go wrong there
            self.start_step(pick, 1)
            self.ask_gate(pick, None, "approval", 1)
        people = self.people()
        if not people:
            return
        unit = people[pick % len(people)]
        self.illegal(b.reserved(unit.ordinal, unit.attempt + 1, unit.step))
        place: dict[str, Any] = {"step": unit.step, "override": override, "note": "n"}
        said = b.approved(unit.ordinal, unit.subject or "", verdict, **place)
        self.illegal(b.approved(unit.ordinal, canon.sha256(b'"unseen"'), verdict, **place))
        if unit.state == "pending":
            self.legal(said)
        else:
            self.illegal(said)

    @precondition(lambda self: self.active())
    @rule(pick=picks, again=st.integers(0, 3), artifact=artifacts)
    def start_loop(self, pick: int, again: int, artifact: bytes | None) -> None:
        """What was said in the loop before holds for items only; the artifact must be asked about again."""
        step = self.at_work(pick, "gating")
        if step is None:
            return
        mine = self.of(step)
        done = [unit.index for unit in oracle.counted(mine) if unit.state == "completed"]
        redone = [index for n, index in enumerate(done) if again >> n & 1]
        units = tuple(
            msgspec.structs.replace(b.new_unit(len(mine) + n, index), feedback=b"{}", session=f"s{again}")
            for n, index in enumerate(redone)
        )
        self.legal(ev.StepStarted(at=self.at(), step=step.step, round=step.round, loop=step.loop + 1, units=units))
        self.carry_out([unit for unit in self.free() if unit.step == step.step], "completed", "pass")
        self.complete_step(step.step, artifact)

    def may_complete(self, step: StepRow, artifact: bytes | None) -> bool:
        """Say from the rows alone whether the step may complete with this artifact."""
        mine = self.of(step)
        if step.state not in ("pending", "running", "gating", "blocked"):
            return False
        if any(unit.state not in ("completed", "failed", "not_run") for unit in oracle.counted(mine)):
            return False
        return oracle.passed(step, mine, self.store.approvals(b.RUN), artifact)

    @precondition(lambda self: self.active())
    @rule(pick=picks, artifact=artifacts)
    def complete_step(self, pick: int, artifact: bytes | None) -> None:
        steps = self.store.steps(b.RUN)
        step = steps[pick % len(steps)]
        event = b.completed(artifact, step.step)
        if self.may_complete(step, artifact):
            self.legal(event)
        else:
            self.illegal(event)

    @precondition(lambda self: self.active())
    @rule(pick=picks)
    def fail_step(self, pick: int) -> None:
        step = self.at_work(pick, "running", "gating")
        if step is not None:
            stopped = ev.UnitsStopped(at=self.at(), step=step.step, reason="stopped")
            self.legal(stopped, b.step_moved(StepState.FAILED, step.step, reason="non_zero_exit"))
