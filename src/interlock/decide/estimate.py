"""What a plan may cost before anything is spent, from the plan and what the project's engines were seen to use.

Guarantees: nothing is guessed silently - each assumption and each unknown is a line in `unknowns`; a bound that
can't be known is None and makes the total's None too; unknown cost is never taken for none.
`lower` counts one call for each unit that surely runs, `upper` every retry, loop and re-ask that may cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from interlock.model.plan import Child, Engine, Judge, Plan, Prompt, Step
from interlock.model.states import Reason

_FREE: Final = frozenset(
    {
        Reason.LLM_RATE_LIMIT,
        Reason.LLM_OVERLOADED,
        Reason.LLM_QUOTA,
        Reason.LLM_AUTH,
        Reason.LLM_CONTEXT_LENGTH,
        Reason.PROMPT_TOO_LARGE,
        Reason.SPAWN_FAILED,
        Reason.ENV_UNRESOLVED,
        Reason.ISOLATION_FAILED,
    }
)
"""After these nothing was used, so that retrying them costs nothing."""


class Sample(msgspec.Struct, frozen=True):
    """What one call used. `model` is the one that was asked for; None is unknown, in the numbers too."""

    engine: str
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


class Span(msgspec.Struct, frozen=True):
    """Bounds of a number. None is unknown, not zero."""

    lower: float
    typical: float | None
    upper: float | None


NOTHING: Final = Span(0, 0, 0)


class StepEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """What the prompts of a step, or the judges of its gate, may use."""

    id: str
    part: Literal["work", "judge"]
    engine: str
    model: str | None
    calls: Span
    tokens: Span
    cost_usd: Span


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan may use. Steps that ask no engine are left out."""

    steps: tuple[StepEstimate, ...]
    tokens: Span
    cost_usd: Span
    unknowns: tuple[str, ...]

    def may_cost_over(self, usd: float) -> bool:
        """Tell whether it can't be ruled out that the run costs more."""
        return self.cost_usd.upper is None or self.cost_usd.upper > usd


def estimate(
    plan: Plan,
    history: Iterable[Sample],
    units: Mapping[str, int | None] | None = None,
    unsure: Mapping[str, str] | None = None,
) -> Estimate:
    """Estimate a plan. `units` says how many are still to run, None where that is not known yet.

    A step that is not in `units` is over; without `units` nothing has run. Those that are `unsure`, for the reason told, may
    cost nothing more.
    """
    return _Estimator(plan, history, unsure or {}).estimate(plan_units(plan) if units is None else units)


def for_a_person(step_id: str) -> str:
    """Say why a step that waits for a person may cost nothing more."""
    return f"whether '{step_id}' costs more is for a person to say"


def plan_units(plan: Plan) -> dict[str, int | None]:
    """Return how many units each step has, as far as the plan alone tells."""
    return {step.id: _count(plan, step) for step in plan.steps}


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest of `values` that at least `share` of them don't exceed. There must be one."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _count(plan: Plan, step: Step) -> int | None:
    if step.map is None:
        return 1
    over = step.map.over
    default = next((param.default_json for param in plan.params if param.name == over.name), None)
    if over.root != "params" or over.path or default is None:
        return None
    items = msgspec.json.decode(default)
    return len(items) if isinstance(items, list) else None


class _Estimator:
    """One pass over a plan; `unknowns` keeps what had to be assumed, each once."""

    def __init__(self, plan: Plan, history: Iterable[Sample], unsure: Mapping[str, str] = MappingProxyType({})) -> None:
        self.plan = plan
        self.unsure = unsure
        self.history = tuple(history)
        self.engines = {engine.name: engine for engine in plan.engines}
        self.unknowns: dict[str, None] = {}
        self.unpriced = False

    def estimate(self, units: Mapping[str, int | None]) -> Estimate:
        optional = _optional(self.plan)
        parts = [
            part
            for step in self.plan.steps
            if step.id in units
            for part in self.step(step, units[step.id], sure=step.id not in optional and step.id not in self.unsure)
        ]
        budget = self.plan.budget
        return Estimate(
            steps=tuple(parts),
            tokens=_capped(_sum(part.tokens for part in parts), budget.max_tokens),
            # calls of unknown price don't count against the ceiling, so it holds nothing then
            cost_usd=_capped(_sum(part.cost_usd for part in parts), None if self.unpriced else budget.max_cost_usd),
            unknowns=tuple(self.unknowns),
        )

    def step(self, step: Step, count: int | None, *, sure: bool) -> list[StepEstimate]:
        judge = step.gate.judge if step.gate else None
        found = []
        if isinstance(step.target, Child) and count != 0:
            found += self.below(step, step.target, _times(count, 1, sure=sure))
        elif isinstance(step.target, Prompt) and count != 0:
            found.append(self.part(step, step.target, "work", self.work_calls(step, count, sure=sure)))
        if judge is not None:
            found.append(self.part(step, judge, "judge", _judge_calls(step, judge, count, sure=sure)))
        if found:
            self.say_unknowns(step, count, sure=sure)
        return found

    def below(self, step: Step, target: Child, runs: Span) -> list[StepEstimate]:
        """Estimate what so many child runs use, each of whose steps is done once."""
        plan = msgspec.structs.replace(self.plan.children[target.plan], children=self.plan.children)
        child = _Estimator(plan, self.history)
        made = child.estimate(plan_units(plan))
        self.unknowns |= {f"in '{step.id}': {text}": None for text in child.unknowns}
        self.unpriced |= child.unpriced
        return [
            msgspec.structs.replace(
                part,
                id=f"{step.id} > {part.id}",
                calls=_product(runs, part.calls),
                tokens=_product(runs, part.tokens),
                cost_usd=_product(runs, part.cost_usd),
            )
            for part in made.steps
        ]

    def work_calls(self, step: Step, count: int | None, *, sure: bool) -> Span:
        tries = 1 + step.retry.max if set(step.retry.on) - _FREE else 1
        asks = 1 if step.unit_schema_json is None else 2
        calls = _times(count, tries * asks * (step.gate.max_loops if step.gate else 1), sure=sure)
        return _capped(calls, self.plan.budget.max_units)

    def part(self, step: Step, who: Prompt | Judge, part: Literal["work", "judge"], calls: Span) -> StepEstimate:
        engine = self.engines[who.engine]
        return StepEstimate(
            id=step.id,
            part=part,
            engine=who.engine,
            model=who.model,
            calls=calls,
            tokens=_product(calls, self.tokens_a_call(engine, who.model)),
            cost_usd=_product(calls, self.cost_a_call(engine, who.model)),
        )

    def tokens_a_call(self, engine: Engine, model: str | None) -> Span:
        seen = [sample for sample in self.history if sample.engine == engine.name and _tokens(sample) is not None]
        same = [sample for sample in seen if sample.model == model] or seen
        if not same:
            assumed = f"{engine.reserve_tokens:,} tokens a call are assumed"
            self.unknowns[f"no call of engine '{engine.name}' has told its tokens here: {assumed}"] = None
            return Span(0, engine.reserve_tokens, None)
        if same[0].model != model:
            asked = f"model '{model}'" if model else "its default model"
            self.unknowns[f"engine '{engine.name}' told its tokens with other models only, not with {asked}"] = None
        return _span([tokens for tokens in map(_tokens, same) if tokens is not None])

    def cost_a_call(self, engine: Engine, model: str | None) -> Span:
        of_engine = (sample for sample in self.history if sample.engine == engine.name and sample.model == model)
        costs = [sample.cost_usd for sample in of_engine if sample.cost_usd is not None]
        if costs:
            return _span(costs)
        self.unpriced = True
        asked = f" with model '{model}'" if model else ""
        self.unknowns[f"what a call of engine '{engine.name}'{asked} costs is not known"] = None
        return Span(0, None, None)

    def say_unknowns(self, step: Step, count: int | None, *, sure: bool) -> None:
        if count is None and step.map is not None:
            self.unknowns[f"how many items '{step.id}' has follows from {step.map.over.text}"] = None
        if step.id in self.unsure:
            self.unknowns[self.unsure[step.id]] = None
        elif not sure:
            self.unknowns[f"whether '{step.id}' runs is decided by a route"] = None


def _optional(plan: Plan) -> set[str]:
    """Return the steps that a route may skip, directly or through what they need."""
    found: set[str] = set()
    for step in plan.steps:
        if step.routers or (step.explicit_needs and step.needs and found.issuperset(step.needs)):
            found.add(step.id)
    return found


def _judge_calls(step: Step, judge: Judge, count: int | None, *, sure: bool) -> Span:
    each = step.gate is not None and step.gate.each
    loops = step.gate.max_loops if step.gate else 1
    verdicts = _times(count if each else 1, loops * 2, sure=sure)
    return _product(verdicts, Span(judge.asked, judge.asked, judge.asked))


def _times(count: int | None, most: int, *, sure: bool) -> Span:
    """Return the calls of `count` units, each of which may make `most`."""
    if count is None:
        return Span(0, None, None)
    return Span(count if sure else 0, count, count * most)


def _tokens(sample: Sample) -> int | None:
    if sample.input_tokens is None or sample.output_tokens is None:
        return None
    return sample.input_tokens + sample.output_tokens


def _span(values: Sequence[float]) -> Span:
    return Span(quantile(values, 0.05), quantile(values, 0.5), quantile(values, 0.95))


def _product(left: Span, right: Span) -> Span:
    return Span(
        left.lower * right.lower, _times_known(left.typical, right.typical), _times_known(left.upper, right.upper)
    )


def _times_known(left: float | None, right: float | None) -> float | None:
    if left == 0 or right == 0:
        return 0
    return None if left is None or right is None else left * right


def _sum(spans: Iterable[Span]) -> Span:
    total = NOTHING
    for span in spans:
        total = Span(
            total.lower + span.lower,
            None if total.typical is None or span.typical is None else total.typical + span.typical,
            None if total.upper is None or span.upper is None else total.upper + span.upper,
        )
    return total


def _capped(span: Span, most: float | None) -> Span:
    """Return `span` under a ceiling, which is a bound even where there was none."""
    if most is None:
        return span
    typical = None if span.typical is None else min(span.typical, most)
    return Span(min(span.lower, most), typical, most if span.upper is None else min(span.upper, most))
