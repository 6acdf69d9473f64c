from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.model import canon
from interlock.model.plan import Limits
from interlock.model.states import Reason, RunState
from interlock.testing.build import failed, ok, over, plan, step
from interlock.testing.simulate import Simulation, simulate


def mapped(
    answers: list[str | None], *, limits: Limits | None = None, schema: object = None, **settings: Any
) -> Simulation:
    """Run a map in which item i gives answer i, or fails for None."""
    specs = plan(step("m", on_error="continue", schema=schema, **settings), limits=limits)

    def answer(_step: object, unit: Any) -> Any:
        said = answers[unit.index]
        return failed() if said is None else ok(said)

    return simulate(specs, answer, {"items": list(range(len(answers)))})


_votes = st.lists(st.none() | st.sampled_from(["a", "b", "c", ""]), max_size=7)


@given(_votes)
def test_a_vote_is_won_by_a_lone_top_with_half_of_the_items_voting(answers: list[str | None]) -> None:
    done = mapped(answers, map=over("params.items", vote=True)).snap
    cast = Counter(said for said in answers if said)
    ranked = cast.most_common()
    tie = len(ranked) > 1 and ranked[0][1] == ranked[1][1]
    if not answers:
        assert (done.run.state, done.steps[0].artifact) == (RunState.COMPLETED, None)
    elif cast.total() * 2 < len(answers) or tie:
        assert (done.run.state, done.steps[0].reason) == (RunState.FAILED, "vote_failed")
    else:
        assert done.steps[0].artifact == canon.dumps(ranked[0][0])


@pytest.mark.parametrize(
    ("answers", "detail"),
    [
        (["a", None, None], "only 1 of 3 items voted; at least half must"),
        (["a", "b"], "a tie at the top: 2 results have 1 vote each, of 2"),
        (["a", "b", "a", "c", "b"], "a tie at the top: 2 results have 2 votes each, of 5"),
    ],
)
def test_a_lost_vote_says_why(answers: list[str | None], detail: str) -> None:
    assert mapped(answers, map=over("params.items", vote=True)).snap.steps[0].detail == detail


def test_a_vote_over_nothing_is_null_whatever_one_vote_must_be_and_the_step_s_schema_still_holds() -> None:
    vote = over("params.items", vote=True, item_schema={"type": "string"})
    done = mapped([], map=vote).snap
    assert (done.run.state, done.run.outcome, done.steps[0].artifact) == (RunState.COMPLETED, "ok", None)
    held = mapped([], map=vote, schema={"type": "string"}).snap
    assert (held.run.state, held.steps[0].reason) == (RunState.FAILED, Reason.VALIDATION_ERROR)


def test_collect_keeps_the_order_of_items_with_null_for_what_failed_or_gave_nothing() -> None:
    done = mapped(["x", None, "", "y"], map=over("params.items")).snap
    assert done.steps[0].artifact == b'["x",null,null,"y"]'
    assert done.run.outcome == "degraded"


def test_an_empty_list_gives_an_empty_list_that_the_schema_still_judges() -> None:
    assert mapped([], map=over("params.items")).snap.steps[0].artifact == b"[]"
    done = mapped([], map=over("params.items"), schema={"type": "array", "minItems": 1}).snap
    assert done.steps[0].reason == Reason.VALIDATION_ERROR
    assert done.steps[0].detail.startswith("the artifact misses the step's schema: value: ")


def test_an_artifact_that_fits_its_schema_is_promoted() -> None:
    assert mapped(["x"], map=over("params.items"), schema={"type": "array", "maxItems": 1}).snap.run.outcome == "ok"


def test_an_artifact_over_its_limit_fails_the_step() -> None:
    done = mapped(["x" * 50, "y" * 50], map=over("params.items"), limits=Limits(max_artifact_bytes=100)).snap
    assert done.steps[0].reason == Reason.OUTPUT_TOO_LARGE
    assert done.steps[0].detail == "the artifact has 107 bytes; the limit is 100 (max_artifact_bytes of [limits])"


@pytest.mark.parametrize("reason", [Reason.ABORTED, Reason.BUDGET_EXCEEDED, Reason.JOURNAL_WRITE_FAILED])
def test_some_reasons_fail_the_step_whatever_on_error_says(reason: Reason) -> None:
    specs = plan(step("m", on_error="continue", map=over("params.items")))
    done = simulate(specs, lambda _s, _u: failed(reason, "why"), {"items": [1]}).snap
    assert done.run.state is RunState.FAILED
    assert done.steps[0].detail == f"unit {done.steps[0].work[0].id} failed: {reason}: why"


def test_a_step_fails_with_the_item_that_failed_first_and_not_with_those_that_were_stopped_by_it() -> None:
    specs = plan(step("m", map=over("params.items", concurrency=3)))

    def answer(_step: object, unit: Any) -> Any:
        said = "it is broken" if unit.index == 2 else "stopped with the run above"
        return failed(Reason.CHILD_FAILED, said)

    done = simulate(specs, answer, {"items": list("abc")}, pick=lambda count: count - 1).snap
    broken = done.steps[0].work[2]
    assert done.steps[0].detail == f"unit {broken.id} failed: child_failed: it is broken"
