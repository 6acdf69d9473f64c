from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.decide.values import UnresolvedError
from interlock.decide.work import base_id, idempotency_key, work_units
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.plan import Command, Engine, Limits, Plan, Prompt
from interlock.model.states import StepState
from interlock.testing.build import over, plan, step
from interlock.testing.simulate import snapshot

_leaves = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("abé\U0001f600")
_keys = st.text("ab", max_size=3)
_items = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3), max_leaves=10
)
_MAP = plan(step("a", map=over("params.items")))


def units(items: list[Any], specs: Plan = _MAP) -> dict[str, str]:
    snap = snapshot(specs, {"items": items})
    return {unit.id: unit.input_hash for unit in work_units(snap, specs.steps[0])}


def promoted_units(items: list[Any]) -> dict[str, str]:
    """Return ids and hashes where the list is an earlier step's artifact: params are part of every hash."""
    specs = plan(step("z"), step("a", map=over("steps.z.output")))
    made = ev.StepMoved(at=1, step=0, state=StepState.COMPLETED, artifact=canon.dumps(items))
    return {unit.id: unit.input_hash for unit in work_units(snapshot(specs, events=[made]), specs.steps[1])}


@given(st.lists(_items, unique_by=repr, max_size=6), st.randoms(use_true_random=False))
def test_ids_and_hashes_do_not_depend_on_the_order_of_items(items: list[Any], chance: Any) -> None:
    shuffled = list(items)
    chance.shuffle(shuffled)
    try:
        found = promoted_units(items)
    except UnresolvedError as error:
        assert "must be distinct" in str(error)  # noqa: PT017 - two spellings of one number are the same item
        return
    assert promoted_units(shuffled) == found
    assert len(found) == len(items)


@pytest.mark.parametrize("pair", [(1, 1.0), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ([0], [-0.0]), ("x", "x")])
def test_items_of_one_canonical_form_are_the_same_item(pair: tuple[Any, Any]) -> None:
    with pytest.raises(UnresolvedError) as caught:
        units(["other", *pair])
    assert str(caught.value) == ("params.items[2] is the same item as [1]; the items of a map must be distinct")


@pytest.mark.parametrize(
    "pair", [(1, "1"), (True, 1), (True, "true"), ("", " "), ("é", "e\u0301"), ([], {}), (0, False)]
)
def test_items_that_only_look_alike_are_different(pair: tuple[Any, Any]) -> None:
    assert len(units(list(pair))) == 2


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["a", None], "params.items[1] is null; the items of a map must not be"),
        ({"a": 1}, "params.items: a map needs a list, and this is an object with a"),
        ("text", "params.items: a map needs a list, and this is a string of 4 characters"),
        (None, "params.items: a map needs a list, and this is null"),
    ],
)
def test_what_is_no_list_of_items_is_named(items: Any, message: str) -> None:
    with pytest.raises(UnresolvedError) as caught:
        units(items)
    assert str(caught.value) == message


def test_more_items_than_the_limit_are_refused() -> None:
    specs = plan(step("a", map=over("params.items")), limits=Limits(max_items=2))
    with pytest.raises(
        UnresolvedError, match=r"^params.items: 3 items are more than the limit of 2 \(max_items of \[limits\]\)$"
    ):
        units([1, 2, 3], specs)


def test_the_id_of_an_item_is_the_hash_of_its_canonical_json() -> None:
    assert list(units(["a"])) == ["a:ac8d8342bbb2362d"]


def test_the_input_hash_covers_all_that_shapes_a_dispatch() -> None:
    base = step("a", "true")
    others = [
        step("a", "false"),
        step("a", Command(argv=("true",))),
        step("a", "true", schema={"type": "string"}),
        step("a", "true", env=("staging",)),
        step("a", "true", cwd="sub"),
        step("a", "true", inputs=["params.items"]),
    ]
    plans = [plan(base), *map(plan, others), msgspec.structs.replace(plan(base), shell=None)]
    found = [units([1], specs)["a:solo"] for specs in plans] + [units([2], plan(base))["a:solo"]]
    assert len(set(found)) == len(found)
    assert all(text.startswith("sha256.v1:") for text in found)


def test_what_does_not_shape_a_dispatch_is_not_in_the_hash() -> None:
    alike = [step("a"), step("a", retries=3, timeout_ms=1, on_error="continue", line=9)]
    assert len({units([1], plan(one))["a:solo"] for one in alike}) == 1


def test_the_idempotency_key_is_the_same_in_every_round() -> None:
    assert base_id("a:solo~r2~l3") == "a:solo"
    assert idempotency_key("run", "a:solo") == idempotency_key("run", "a:solo~r2")
    assert idempotency_key("run", "a:solo") != idempotency_key("other", "a:solo")


def test_an_input_hash_tells_engines_and_models_apart_and_knows_no_engine_of_a_command() -> None:
    def hashed(target: Any, **engine: Any) -> str:
        settings: dict[str, Any] = {"kind": "agent", "driver": "claude", "model": "one", **engine}
        specs = plan(step("a", target))
        specs = msgspec.structs.replace(specs, engines=(Engine(name="e", **settings),))
        return work_units(snapshot(specs), specs.steps[0])[0].input_hash

    asked = Prompt(text="do", engine="e")
    others: list[dict[str, Any]] = [{"model": "two"}, {"driver": "codex"}, {"kind": "llm"}, {"env": ("g",)}]
    assert len({hashed(asked), *(hashed(asked, **other) for other in others)}) == 5
    named = Prompt(text="do", engine="e", model="three")
    assert hashed(named) == hashed(named, model="two")
    assert hashed(Command(text="x")) == hashed(Command(text="x"), model="two")
    assert hashed(asked) == hashed(asked, reserve_tokens=1)
