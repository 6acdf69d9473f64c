"""Lives of runs with prompts, judges and people: random plans, engines that fail in every way, and who answers."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st
from tests.decide.runs import picker

from interlock.decide import reopen, requests
from interlock.decide.upcoming import engine_of
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.events import Answered, Usage
from interlock.model.outcome import Outcome
from interlock.model.plan import Budget, Command, Gate, Judge, Map, Plan, Retry
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Step, Unit
from interlock.model.states import Reason, RunState, StepState
from interlock.testing.build import QUICK, failed, ok, over, plan, prompt, step
from interlock.testing.simulate import Simulation, snapshot

ITEMS: dict[str, Any] = {"items": ["a", 1, True]}
PASS = canon.dumps({"complete": True, "missing": [], "feedback": ""})
FAILURES = (
    Reason.LLM_RATE_LIMIT, Reason.LLM_OVERLOADED, Reason.LLM_QUOTA, Reason.LLM_AUTH, Reason.NETWORK_ERROR,
    Reason.TIMEOUT, Reason.LLM_BAD_RESPONSE,
)  # fmt: skip
PATIENCE = 30
"""Times that a person or a timer lets a run go on before all troubles are over."""


@st.composite
def agent_plans(draw: st.DrawFn) -> Plan:
    """Draw up to four steps, side by side or one after the other, most with a gate."""
    count = draw(st.integers(1, 4))
    steps = [_step(draw, index) for index in range(count)]
    budget = Budget(max_tokens=draw(st.sampled_from([None, None, 60_000, 300_000])))
    return plan(*steps, budget=budget)


def _step(draw: st.DrawFn, index: int) -> PlanStep:
    target = prompt(engine=draw(st.sampled_from(["e", "e", "j"])))
    mapped: Map | None = over("params.items", concurrency=2) if draw(st.booleans()) else None
    schema = draw(st.sampled_from([None, {"type": "string"}])) if mapped is None else None
    return step(
        f"s{index}",
        target if draw(st.integers(0, 3)) else "true",
        needs=[] if draw(st.booleans()) else None,
        map=mapped,
        schema=schema,
        gate=_gate(draw, each=mapped is not None and draw(st.booleans())),
        on_error=draw(st.sampled_from(["fail", "continue"])),
        retry=Retry(max=2, on=(Reason.LLM_RATE_LIMIT, Reason.LLM_OVERLOADED, Reason.TIMEOUT), backoff=QUICK),
    )


def _gate(draw: st.DrawFn, *, each: bool) -> Gate | None:
    judge = Judge(rubric="Good.", engine="j", asked=draw(st.integers(1, 5))) if draw(st.booleans()) else None
    check = Command(text="look") if draw(st.booleans()) else None
    approval = draw(st.booleans())
    if judge is None and check is None and not approval:
        return None
    return Gate(check=check, judge=judge, approval=approval, max_loops=draw(st.integers(1, 3)), each=each)


class Life:
    """One run from its beginning to its completion: its world troubles it until patience is at an end."""

    def __init__(self, specs: Plan, seed: int) -> None:
        self.specs = specs
        self.seed = seed
        self.mended = False
        self.simulation = Simulation(snapshot(specs, ITEMS), self.answer, picker(seed))
        self.ends: list[tuple[RunState, int]] = []

    @property
    def events(self) -> list[ev.Event]:
        return self.simulation.events

    def chance(self, *about: object) -> int:
        return zlib.crc32(repr((self.seed, *about)).encode()) % 100

    def answer(self, step_: Step, unit: Unit) -> Outcome:
        if self.mended:
            return ok(PASS if unit.kind == "judge" else canon.dumps(f"{unit.id} done"))
        luck = self.chance(unit.id, unit.attempt)
        prompted = engine_of(self.specs.steps[step_.index], unit.kind) is not None
        if luck < 20 and prompted:
            return self.trouble(unit)
        said = self.judged(luck) if unit.kind == "judge" else self.worked(unit, luck)
        return msgspec.structs.replace(said, usage=Usage(input_tokens=luck, output_tokens=1) if luck % 3 else None)

    def trouble(self, unit: Unit) -> Outcome:
        reason = FAILURES[self.chance("why", unit.id, unit.attempt) % len(FAILURES)]
        until = (None, 1, self.simulation.at + 5_000)[self.chance("until", unit.id) % 3]
        return msgspec.structs.replace(failed(reason, "trouble", answered=False), quota_until=until)

    def judged(self, luck: int) -> Outcome:
        if luck < 40:
            return ok(("", "{}", '{"complete": "true"}', "yes")[luck % 4])
        return ok(canon.dumps({"complete": luck >= 60, "missing": ["m"], "feedback": f"said {luck}"}))

    def worked(self, unit: Unit, luck: int) -> Outcome:
        if unit.kind == "gate":
            return ok("no", exit_code=(0, 1, 126)[luck % 3])
        session = Answered(session=f"session of {unit.id}")
        text = ("mumble", "7", canon.dumps(f"{unit.id} did {luck}"))[min(luck // 25, 2)]
        return msgspec.structs.replace(ok(text), answered_by=session)

    def live(self, watch: Callable[[Life], None]) -> None:
        """Drive, and let people and timers act, until the run completes; `watch` looks on whenever it stops."""
        for turn in range(2 * PATIENCE):
            self.mended = turn >= PATIENCE
            self.drive(turn)
            self.ends.append((self.simulation.snap.run.state, len(self.events)))
            watch(self)
            if self.simulation.snap.run.state is RunState.COMPLETED:
                return
            self.act(turn)
        raise AssertionError(f"a mended run did not complete: {self.simulation.snap.run}")

    def drive(self, turn: int) -> None:
        """Drive until nothing moves; some drivers die on the way."""
        turns = self.chance("dies", turn)
        while self.simulation.turn():
            turns -= 1
            if turns == 0:
                self.simulation.take_over()

    def act(self, turn: int) -> None:
        run = self.simulation.snap.run
        if run.state is RunState.WAITING:
            assert run.wait_until is not None
            self.simulation.at = max(self.simulation.at, run.wait_until)
            self.simulation.take_over()
        elif run.state is RunState.FAILED:
            self.raise_budget()
            self.simulation.add(*reopen.reopen(self.simulation.snap, self.simulation.now()))
        else:
            self.person(turn)
            self.simulation.take_over()

    def raise_budget(self) -> None:
        snap, now = self.simulation.snap, self.simulation.now()
        if snap.run.reason == "budget_exceeded":
            self.simulation.add(*requests.answer(snap, "raise", {"max_tokens": snap.tokens + 900_000}, now).events)

    def person(self, turn: int) -> None:
        """Answer what waits, one way or the other."""
        luck = 0 if self.mended else self.chance("person", turn)
        for held in self.simulation.snap.steps:
            if held.state is StepState.BLOCKED and held.reason != "llm_quota":
                self.ask_person(held, luck)

    def ask_person(self, held: Step, luck: int) -> None:
        payload: dict[str, Any] = {"by": "me", "target": held.id, "note": "please" if luck % 2 else ""}
        kind = "reject" if luck > 60 else "approve"
        if held.reason != "approval_needed" and luck <= 60:
            payload["override"] = luck < 30
        if held.reason == "gate_rejected" and 30 <= luck <= 60:
            kind, payload = "loops", {"loops": 1}
        answer = requests.answer(self.simulation.snap, kind, payload, self.simulation.now())
        self.simulation.add(*answer.events)
