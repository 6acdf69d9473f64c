"""References round trip, and nothing else parses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.model.plan import Reference
from interlock.plan.refs import PARAM_NAME, STEP_ID, ReferenceSyntaxError, parse_reference, unparse

STEPS = st.from_regex(STEP_ID, fullmatch=True)
PATHS = st.lists(STEPS | st.integers(0, 999_999_999), max_size=5)


@given(STEPS, PATHS)
def test_step_references_round_trip(step: str, path: list[str | int]) -> None:
    text = unparse(Reference(text="", root="steps", name=step, path=tuple(path)))
    found = parse_reference(text)

    assert (found.text, found.name, found.path, found.root) == (text, step, tuple(path), "steps")
    assert unparse(found) == text


@given(st.from_regex(PARAM_NAME, fullmatch=True))
def test_param_references_round_trip(name: str) -> None:
    assert unparse(parse_reference(f"params.{name}")) == f"params.{name}"


@given(st.text())
def test_any_text_is_a_reference_or_refused(text: str) -> None:
    try:
        found = unparse(parse_reference(text))
    except ReferenceSyntaxError:
        return
    assert found == text


@pytest.mark.parametrize(
    "text",
    [
        "params.a.b",
        "params.a[0]",
        "params.a-b",
        "params.",
        "steps.a",
        "steps.a.outputs",
        "steps.a.output.",
        "steps.a.output[01]",
        "steps.a.output[-1]",
        "steps.a.output[1234567890]",
        "steps.a.output.é",
        "steps.9.output",
        " params.a",
        "params.a\n",
        "${{ params.a }}",
        "item",
        "steps.a.output" + ".x" * 500,
    ],
)
def test_nothing_else_parses(text: str) -> None:
    with pytest.raises(ReferenceSyntaxError):
        parse_reference(text)
