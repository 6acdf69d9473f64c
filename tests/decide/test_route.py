from __future__ import annotations

from typing import Any

import pytest

from interlock.decide.reduce import Broken
from interlock.decide.route import choose
from interlock.model.plan import Route
from interlock.model.states import RunState, StepState
from interlock.testing.build import ok, plan, route, step
from interlock.testing.simulate import simulate, snapshot

_WHEN = {"pass": "x", "1": "y", "true": "z", "1.5": "w", "null": "n"}


def chosen(value: Any, made: Route | None = None) -> str | Broken:
    snap = snapshot(plan(step("a")), {"v": value})
    return choose(snap, made or route("params.v", _WHEN))


@pytest.mark.parametrize(
    ("value", "target"),
    [("pass", "x"), ("1", "y"), (1, "y"), (1.0, "y"), (True, "z"), ("true", "z"), (1.5, "w"), ("null", "n")],
)
def test_a_value_is_matched_by_its_text(value: Any, target: str) -> None:
    assert chosen(value) == target


@pytest.mark.parametrize(
    ("value", "shown"), [("Pass", '"Pass"'), (2, '"2"'), (False, '"false"'), (None, "null"), ("", '""')]
)
def test_without_default_a_value_that_matches_nothing_fails(value: Any, shown: str) -> None:
    assert chosen(value) == Broken(
        "route_failed", f"params.v is {shown}, which no `match` names, and there is no default"
    )
    assert chosen(value, route("params.v", _WHEN, "other")) == "other"


def test_only_primitive_values_are_matched() -> None:
    text = "params.v is a list of 1; a route matches strings and numbers"
    assert chosen([1], route("params.v", _WHEN, "other")) == Broken("route_failed", text)


def test_a_reference_to_nothing_fails_the_route_whatever_its_default() -> None:
    found = chosen(1, route("params.w", _WHEN, "other"))
    assert found == Broken("dispatch_error", "params.w: the optional parameter 'w' was not given")


def test_a_failed_route_fails_the_run_and_nothing_after_it_begins() -> None:
    specs = plan(step("r", route=route("params.v", {"a": "a"})), step("a"), step("b"))
    done = simulate(specs, lambda _s, _u: ok(), {"v": "zzz"})
    assert [s.state for s in done.snap.steps] == [StepState.FAILED, StepState.PENDING, StepState.PENDING]
    assert done.snap.run.state is RunState.FAILED
    assert done.snap.run.detail == "step 'r': params.v is \"zzz\", which no `match` names, and there is no default"


def test_skips_cascade_through_a_skipped_router_and_any_router_that_chose_lets_a_target_run() -> None:
    specs = plan(
        step("first", route=route("params.v", {"l": "left", "r": "right"})),
        step("left", needs=["first"], route=route("params.v", {"l": "end"}, "end")),
        step("right", needs=["first"], route=route("params.v", {"r": "both"}, "both")),
        step("end", needs=[]),
        step("both", needs=[]),
        step("after", needs=["end"]),
        step("last"),
    )
    done = simulate(specs, lambda _s, _u: ok(), {"v": "r"})
    states = {s.id: str(s.state) for s in done.snap.steps}
    assert states == {
        "first": "completed", "left": "skipped", "right": "completed",
        "end": "skipped", "both": "completed", "after": "skipped", "last": "completed",
    }  # fmt: skip
    assert done.snap.run.outcome == "ok"
