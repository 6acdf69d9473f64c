from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.decide.values import UnresolvedError, describe, lookup, lookup_json, schema_errors
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.run import Snapshot
from interlock.model.states import StepState
from interlock.testing.build import plan, ref, step
from interlock.testing.simulate import snapshot

_SPECS = plan(step("a"), step("b"))


def after(artifact: Any, params: dict[str, Any] | None = None) -> Snapshot:
    raw = None if artifact is None else canon.dumps(artifact)
    moved = ev.StepMoved(at=1, step=0, state=StepState.COMPLETED, artifact=raw)
    return snapshot(_SPECS, params, [moved])


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text("abc"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
)


@given(_json, st.data())
def test_a_reference_finds_what_python_would_find(value: Any, data: st.DataObject) -> None:
    text, found = "steps.a.output", value
    while isinstance(found, dict | list) and found and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(found) if isinstance(found, dict) else range(len(found))))
        text += f".{key}" if isinstance(key, str) else f"[{key}]"
        found = found[key]
    assert lookup(after(value), ref(text)) == found
    assert lookup_json(after(value), ref(text)) == canon.dumps(found)


def test_params_are_found_by_name_and_path() -> None:
    snap = after(None, {"p": {"list": [1, {"x": 2}]}})
    assert lookup(snap, ref("params.p.list[1].x")) == 2
    assert lookup_json(snap, ref("params.p")) == b'{"list":[1,{"x":2}]}'
    assert lookup(snap, ref("params.p.list[-1]")) == {"x": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("params.q", "params.q: the optional parameter 'q' was not given"),
        ("steps.a.output.y", "steps.a.output.y: there is no .y in an object with list, x"),
        ("steps.a.output.x.y", "steps.a.output.x.y: there is no .y in a number"),
        ("steps.a.output.list[2]", "steps.a.output.list[2]: there is no [2] in a list of 2"),
        ("steps.a.output.list[-3]", "steps.a.output.list[-3]: there is no [-3] in a list of 2"),
        ("steps.a.output[0]", "steps.a.output[0]: there is no [0] in an object with list, x"),
        ("steps.b.output", "steps.b.output: step 'b' is pending, so it has no output"),
    ],
)
def test_a_reference_to_nothing_says_what_was_found_instead(text: str, message: str) -> None:
    snap = after({"x": 1, "list": [1, 2]})
    with pytest.raises(UnresolvedError) as caught:
        lookup_json(snap, ref(text))
    assert str(caught.value) == message


def test_the_output_of_a_skipped_or_silent_step_is_null() -> None:
    skipped = snapshot(_SPECS, events=[ev.StepMoved(at=1, step=0, state=StepState.SKIPPED)])
    assert lookup(skipped, ref("steps.a.output")) is None
    assert lookup_json(skipped, ref("steps.a.output")) == b"null"
    assert lookup(after(None), ref("steps.a.output")) is None
    with pytest.raises(UnresolvedError, match=r"there is no \.x in null \(the step was skipped or gave nothing\)"):
        lookup(skipped, ref("steps.a.output.x"))


@pytest.mark.parametrize(
    ("value", "text"),
    [("ab", "a string of 2 characters"), ([1], "a list of 1"), ({}, "an object with no keys"), (None, "null"),
     (True, "a boolean"), (1.5, "a number"), (dict.fromkeys("fedcba"), "an object with a, b, c, d, e")],
)  # fmt: skip
def test_values_are_described_by_kind_and_size(value: object, text: str) -> None:
    assert describe(value) == text


def test_at_most_three_misses_of_a_schema_are_named_with_their_places() -> None:
    schema = '{"type":"array","items":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}'
    assert schema_errors(None, object()) == []
    assert schema_errors(schema, [{"n": 1}]) == []
    assert schema_errors(schema, 3) == ['value: 3 is not of type "array"']
    assert schema_errors(schema, [{"n": "x"}, {}, 1, 2]) == [
        '[0].n: "x" is not of type "integer"',
        '[1]: "n" is a required property',
        '[2]: 1 is not of type "object"',
    ]


def test_formats_are_asserted() -> None:
    assert schema_errors('{"format":"date"}', "2024-02-30") != []
    assert schema_errors('{"format":"date"}', "2024-02-29") == []


def test_a_number_beyond_64_bits_is_judged_without_harm() -> None:
    assert schema_errors('{"type":"integer"}', 2**70) == []
    assert schema_errors('{"type":"string"}', 2**70) != []
