from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.decide.estimate import NOTHING, Estimate, Sample, Span, estimate, plan_units, quantile
from interlock.model.plan import Budget, Command, Engine, Gate, Judge, Param, Plan, Prompt, Retry, Step
from interlock.model.states import Reason
from interlock.testing.build import over, plan, route, step

FAST = Engine(name="fast", kind="llm", driver="openai", model="small-1", reserve_tokens=500)
CODER = Engine(name="coder", kind="agent", driver="claude")
ONCE = [Sample("fast", "small-1", 80, 20, 0.5)]


def asking(step_id: str = "a", engine: str = "fast", model: str | None = "small-1", **fields: Any) -> Step:
    made = step(step_id)
    return msgspec.structs.replace(made, target=Prompt(text="hi", engine=engine, model=model), **fields)


def judged(*, asked: int = 1, max_loops: int = 1, each: bool = False) -> Gate:
    judge = Judge(rubric="good", engine="fast", model="small-1", asked=asked)
    return Gate(judge=judge, max_loops=max_loops, each=each)


def planned(*steps: Step, budget: Budget | None = None, params: tuple[Param, ...] = ()) -> Plan:
    made = plan(*steps)
    return msgspec.structs.replace(made, engines=(FAST, CODER), budget=budget or Budget(), params=params)


def of(*steps: Step, history: list[Sample] | None = None, **fields: Any) -> Estimate:
    return estimate(planned(*steps, **fields), ONCE if history is None else history)


def test_a_plan_that_asks_no_engine_costs_nothing() -> None:
    found = of(step("a"), history=[])
    assert found == Estimate(steps=(), tokens=NOTHING, cost_usd=NOTHING, unknowns=())
    assert not found.may_cost_over(0)


def test_one_prompt_costs_what_such_a_call_was_seen_to_cost() -> None:
    history = [Sample("fast", "small-1", n, n, n / 100) for n in range(1, 101)]
    found = of(asking(), history=history)
    assert (found.tokens, found.cost_usd) == (Span(10, 100, 190), Span(0.05, 0.5, 0.95))
    assert found.unknowns == ()
    assert (found.may_cost_over(0.94), found.may_cost_over(0.95)) == (True, False)


def test_a_step_that_may_be_taken_over_is_not_sure_to_cost_anything() -> None:
    specs = planned(asking(gate=judged(max_loops=2)), asking("b"))
    found = estimate(specs, ONCE, {"a": 1, "b": 1}, unsure={"a": "who knows"})
    assert [part.calls for part in found.steps] == [Span(0, 1, 2), Span(0, 1, 4), Span(1, 1, 1)]
    assert found.unknowns == ("who knows",)


def test_an_engine_without_history_is_charged_its_reservation_and_its_most_is_unknown() -> None:
    found = of(asking(), history=[])
    assert (found.tokens, found.cost_usd) == (Span(0, 500, None), Span(0, None, None))
    assert found.unknowns == (
        "no call of engine 'fast' has told its tokens here: 500 tokens a call are assumed",
        "what a call of engine 'fast' with model 'small-1' costs is not known",
    )
    assert found.may_cost_over(1_000_000)


def test_another_model_of_the_engine_tells_tokens_but_no_price() -> None:
    found = of(asking(model="big-1"), asking("b", "coder", None), history=[*ONCE, Sample("coder", "x", 1, 2, 3)])
    assert (found.tokens, found.cost_usd) == (Span(103, 103, 103), Span(0, None, None))
    assert found.unknowns == (
        "engine 'fast' told its tokens with other models only, not with model 'big-1'",
        "what a call of engine 'fast' with model 'big-1' costs is not known",
        "engine 'coder' told its tokens with other models only, not with its default model",
        "what a call of engine 'coder' costs is not known",
    )


def test_calls_of_unknown_usage_are_no_samples() -> None:
    history = [*ONCE, Sample("fast", "small-1", None, 9, None), Sample("fast", "small-1", 9, None, None)]
    found = of(asking(), history=history)
    assert (found.tokens, found.cost_usd) == (Span(100, 100, 100), Span(0.5, 0.5, 0.5))


@pytest.mark.parametrize(
    ("fields", "calls"),
    [
        ({}, Span(1, 1, 1)),
        ({"output_schema_json": "{}"}, Span(1, 1, 2)),
        ({"retry": Retry(max=3, on=(Reason.LLM_RATE_LIMIT, Reason.LLM_OVERLOADED))}, Span(1, 1, 1)),
        ({"retry": Retry(max=3, on=(Reason.LLM_RATE_LIMIT, Reason.TIMEOUT))}, Span(1, 1, 4)),
        ({"gate": Gate(max_loops=5), "output_schema_json": "{}"}, Span(1, 1, 10)),
    ],
)
def test_the_most_counts_every_retry_loop_and_re_ask_that_may_cost(fields: dict[str, Any], calls: Span) -> None:
    (found,) = of(asking(**fields)).steps
    assert found.calls == calls
    assert found.tokens.upper == 100 * (calls.upper or 0)


def test_a_map_over_a_default_has_as_many_units_as_that() -> None:
    params = (Param(name="xs", default_json="[1,2,3]"), Param(name="one", default_json="1"), Param(name="none"))
    made = planned(
        asking("a", map=over("params.xs")),
        asking("b", map=over("params.one")),
        asking("c", map=over("params.none")),
        asking("d", map=over("params.xs[0]")),
        asking("e"),
        params=params,
    )
    assert plan_units(made) == {"a": 3, "b": None, "c": None, "d": None, "e": 1}
    assert estimate(made, ONCE).steps[0].calls == Span(3, 3, 3)


def test_items_that_are_not_known_yet_are_said_and_leave_the_rest_known() -> None:
    found = of(asking(), asking("b", map=over("steps.a.output")))
    assert (found.tokens, found.cost_usd) == (Span(100, None, None), Span(0.5, None, None))
    assert found.unknowns == ("how many items 'b' has follows from steps.a.output",)


def test_judges_are_counted_for_each_loop_and_each_item() -> None:
    (work, judge) = of(asking(gate=judged(asked=3, max_loops=2))).steps
    assert (work.part, work.calls) == ("work", Span(1, 1, 2))
    assert (judge.part, judge.engine, judge.model) == ("judge", "fast", "small-1")
    assert judge.calls == Span(3, 3, 12)
    params = (Param(name="xs", default_json="[1,2]"),)
    (_, judge) = of(asking(map=over("params.xs"), gate=judged(each=True)), params=params).steps
    assert judge.calls == Span(2, 2, 4)
    (_, judge) = of(asking(map=over("params.xs"), gate=judged()), params=params).steps
    assert judge.calls == Span(1, 1, 2)
    (judge,) = of(msgspec.structs.replace(step("a"), gate=judged())).steps
    assert judge.part == "judge"


def test_what_a_route_may_skip_is_not_in_the_least() -> None:
    first = step("r", route=route("params.x", {"1": "a", "2": "b"}))
    then = asking("b", needs=("r",), explicit_needs=True, routers=("r",))
    after = asking("c", needs=("b",), explicit_needs=True)
    beside = asking("d", needs=("r", "b"), explicit_needs=True)
    found = of(first, then, after, beside)
    assert [part.calls.lower for part in found.steps] == [0, 0, 1]
    assert found.unknowns == (
        "whether 'b' runs is decided by a route",
        "whether 'c' runs is decided by a route",
    )


def test_only_what_is_still_to_run_counts() -> None:
    made = planned(asking("a"), asking("b", gate=judged()), asking("c", map=over("steps.a.output")))
    found = estimate(made, ONCE, {"b": 0, "c": 2})
    assert [(part.id, part.part, part.calls.typical) for part in found.steps] == [("b", "judge", 1), ("c", "work", 2)]


def test_ceilings_of_the_budget_are_bounds() -> None:
    budget = Budget(max_units=7, max_tokens=150, max_cost_usd=1.5)
    found = of(asking(), asking("b", map=over("steps.a.output")), budget=budget)
    assert (found.tokens, found.cost_usd) == (Span(100, None, 150), Span(0.5, None, 1.5))
    assert found.steps[1].calls == Span(0, None, 7)
    assert not found.may_cost_over(2)


def test_a_ceiling_of_money_holds_nothing_where_a_price_is_unknown() -> None:
    found = of(asking(), history=[], budget=Budget(max_cost_usd=1.5))
    assert found.cost_usd.upper is None


def test_a_probe_or_check_is_no_call() -> None:
    assert of(msgspec.structs.replace(step("a"), gate=Gate(check=Command(text="x")))).steps == ()


@given(st.lists(st.integers(0, 50), min_size=1), st.floats(0, 1))
def test_a_quantile_is_one_of_the_values_and_enough_of_them_do_not_exceed_it(values: list[int], share: float) -> None:
    found = quantile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) <= share * len(values)


@given(
    st.lists(
        st.builds(
            Sample,
            st.sampled_from(["fast", "coder"]),
            st.sampled_from([None, "small-1"]),
            st.none() | st.integers(0, 9),
            st.none() | st.integers(0, 9),
            st.none() | st.floats(0, 1),
        )
    ),
    st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 5)),
)
def test_bounds_are_in_order_whatever_was_seen(history: list[Sample], units: dict[str, int | None]) -> None:
    made = planned(asking("a"), asking("b", "coder", None, gate=judged(max_loops=2)), asking("c", map=over("params.x")))
    found = estimate(made, history, units)
    for span in (found.tokens, found.cost_usd, *(part.tokens for part in found.steps)):
        known = [bound for bound in (span.lower, span.typical, span.upper) if bound is not None]
        assert known == sorted(known)
