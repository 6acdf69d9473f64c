from __future__ import annotations

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from interlock.model import canon

_texts = st.text(st.characters(exclude_categories=["Cs"]))
_floats = st.floats(allow_nan=False, allow_infinity=False)
_small = st.integers(-(2**53) + 1, 2**53 - 1)


def _json(numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | _texts | numbers
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(_texts, inner), max_leaves=20)


@given(_json(_small | _floats))
def test_canonical_bytes_are_those_of_rfc_8785(value: Any) -> None:
    assert canon.dumps(value) == rfc8785.dumps(value)


@given(_json(st.integers() | _floats))
def test_the_fast_path_writes_what_the_slow_path_writes(value: object) -> None:
    assert canon.dumps(value) == canon._slow(value)  # noqa: SLF001 - the two paths are what is compared


@given(_json(st.integers() | st.floats(-(2.0**53), 2.0**53)))
def test_a_value_survives_the_round_trip(value: object) -> None:
    assert canon.loads(canon.dumps(value)) == value


@given(_json(st.integers() | _floats))
def test_canonical_bytes_stay_what_they_are(value: object) -> None:
    raw = canon.dumps(value)
    assert canon.normalise(raw)[1] == raw


@given(_json(st.integers() | _floats))
def test_any_spelling_of_a_value_has_one_canonical_form(value: object) -> None:
    assert canon.normalise(json.dumps(value, indent=1))[1] == canon.dumps(value)


@given(st.binary(max_size=40))
def test_no_bytes_raise_anything_else(raw: bytes) -> None:
    try:
        value, canonical = canon.normalise(raw)
    except canon.NotJsonError:
        return
    assert canon.dumps(value) == canonical


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, 2**64, 2**64 + 1, -(2**63) - 1, 10**40, -(10**40)])
def test_big_integers_keep_their_exact_digits(number: int) -> None:
    assert canon.dumps({"n": number}) == b'{"n":%d}' % number
    assert canon.loads(b" [%d] " % number) == [number]
    assert canon.loads(b"[%d]" % number) == [number]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, b"1"),
        (-0.0, b"0"),
        (1e21, b"1e+21"),
        (1e-7, b"1e-7"),
        (1e15, b"1000000000000000"),
        (123456789.125, b"123456789.125"),
        (0.0001, b"0.0001"),
        ({"é": 1, "e": 2}, '{"e":2,"é":1}'.encode()),
        ({"\U0001f600": 1, "\ufb33": 2}, '{"\U0001f600":1,"\ufb33":2}'.encode()),
        ((1, [True, None]), b"[1,[true,null]]"),
    ],
)
def test_numbers_and_keys_are_written_as_ecmascript_would(value: object, text: bytes) -> None:
    assert canon.dumps(value) == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "NaN and infinities are not JSON"),
        ([float("-inf")], "NaN and infinities are not JSON"),
        ({"a": "\ud800"}, "a lone surrogate is not JSON text"),
        ({"\udfff": 1}, "a lone surrogate is not JSON text"),
        ({"\udfff": 1, "a": 1.0}, "a lone surrogate is not JSON text"),
        ({"a": 1.0, "b": "\ud800"}, "a lone surrogate is not JSON text"),
        ({1: 2}, "an object key must be a string, not int"),
        ({"a": {1}}, "a set is not JSON"),
        (b"x", "a bytes is not JSON"),
    ],
)
def test_what_is_not_json_is_refused(value: object, message: str) -> None:
    with pytest.raises(canon.NotJsonError, match=f"^{message}$"):
        canon.dumps(value)


@pytest.mark.parametrize("key", ["a", "é"])
def test_a_number_of_too_many_digits_is_refused(key: str) -> None:
    with pytest.raises(canon.NotJsonError, match=r"^a number of more than 4,300 digits$"):
        canon.dumps({key: 10**5_000})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"a":1,"a":1}', 'duplicate key "a"'),
        (b'[{"x":{"b":1,"c":2,"b":3}}]', 'duplicate key "b"'),
        (b"NaN", "NaN is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b"1e999", "NaN and infinities are not JSON"),
        (b'"\\ud800"', "a lone surrogate is not JSON text"),
        ('"\ud800"', "not UTF-8 at byte 1"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b"", "Expecting value at line 1 column 1"),
        (b"1 2", "Extra data at line 1 column 3"),
        (b"{", "Expecting property name enclosed in double quotes at line 1 column 2"),
        (b"[" * 100_000, "more than 64 levels of nesting"),
        (b"9" * 5_000, "a number of more than 4,300 digits"),
        (b"-" + b"9" * 5_000, "a number of more than 4,300 digits"),
    ],
)
def test_text_that_is_not_strict_json_is_refused_with_the_place(text: bytes | str, message: str) -> None:
    with pytest.raises(canon.NotJsonError) as caught:
        canon.loads(text)
    assert str(caught.value) == message


def _nested(levels: int, *, objects: bool) -> bytes:
    return (b'{"a":' * levels + b"1" + b"}" * levels) if objects else (b"[" * levels + b"]" * levels)


@pytest.mark.parametrize("objects", [False, True])
def test_sixty_four_levels_are_the_limit(objects: bool) -> None:  # noqa: FBT001 - a parameter of the case
    assert canon.normalise(_nested(64, objects=objects))[1] == _nested(64, objects=objects)
    with pytest.raises(canon.NotJsonError, match="more than 64 levels of nesting"):
        canon.loads(_nested(65, objects=objects))


def test_hashes_name_their_algorithm() -> None:
    assert canon.sha256(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert canon.item_digest(b'"a"') == "ac8d8342bbb2362d"
