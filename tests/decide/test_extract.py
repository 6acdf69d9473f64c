from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.decide.extract import Found, Miss, find_json
from interlock.decide.fenced import fences, only_fence, spans
from interlock.model import canon


def schema(**properties: Any) -> str:
    shape = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return canon.dumps(shape).decode()


A = schema(a={"type": "integer"})
TEXT = schema(t={"type": "string"})
ONE = Found(b'{"a":1}')
NONE = Miss("it holds no JSON value")
SEVERAL = Miss("it holds 2 different values that fit the schema")


@pytest.mark.parametrize(
    "reply",
    [
        '{"a": 1}',
        '\n\n {"a":1}\n',
        'Here it is:\n```json\n{"a": 1}\n```\nDone.',
        'Here it is:\r\n```json\r\n{"a": 1}\r\n```\r\n',
        '~~~\n{"a": 1}\n~~~',
        '   ````\n{"a": 1}\n`````  ',
        'The result is {"a": 1}.',
        'See [1] and {x}: {"a": 1}, as said.',
        '{"a": 1} or, put differently, {"a": 1.0}',
        '```\n{"a": 1}\n```\n\n```\n{ "a" : 1 }\n```',
        'first {"b": 2}, then {"a": 1}',
        'A quote " before {"a": 1}',
        '```json\n{"a": 1}',
        'Fences go first: {"a": 2}\n```\n{"a": 1}\n```',
        '```\nno json\n```\n{"a": 1}',
        "```\n" + '{"a":\n1}' + "\n```",
    ],
)
def test_the_one_value_that_fits_is_found(reply: str) -> None:
    assert find_json(reply, A) == ONE


@pytest.mark.parametrize(
    ("reply", "miss"),
    [
        ("", Miss("it was empty")),
        (" \n\t", Miss("it was empty")),
        ("I can't.", NONE),
        ('{"a": 1', NONE),
        ('```json\n{"a": 1\n```', NONE),
        ('{"a": 1} {"a": 2}', SEVERAL),
        ('```\n{"a": 1}\n```\n```\n{"a": 2}\n```', SEVERAL),
        ('{"a": 1, "a": 1}', NONE),
        ('{"a": NaN}', NONE),
        ('{"x": {"a": 1}', NONE),
        ('{"x" 7, "y": {"a": 1}}', NONE),
        ('{"x": [1, {"a": 1}', NONE),
        ('{"x": "never closed, {"a": 1}', NONE),
        ('["unclosed, then {"a": 1}', NONE),
        ("[" * 65 + '{"a":1}' + "]" * 65, NONE),
        ('{"a": "\\ud800"}', NONE),
        ('"text"', Miss('its JSON does not fit the schema: value: "text" is not of type "object"', misfits=True)),
        (
            '{"x": {"a": 1}}',
            Miss(
                "its JSON does not fit the schema: value: Additional properties are not allowed ('x' was unexpected); "
                'value: "a" is a required property',
                misfits=True,
            ),
        ),
        (
            '[{"a": 1}]',
            Miss('its JSON does not fit the schema: value: [{"a":1}] is not of type "object"', misfits=True),
        ),
    ],
)
def test_no_value_or_several_are_a_miss_that_says_why(reply: str, miss: Miss) -> None:
    assert find_json(reply, A) == miss


def test_the_first_misfit_is_the_one_that_is_told() -> None:
    found = find_json('```\n{"a": "x"}\n```\n{"a": null}', A)
    assert found == Miss('its JSON does not fit the schema: a: "x" is not of type "integer"', misfits=True)


PLACEHOLDERS = ("...", "<your text here>", "todo", " string ", "…", "Placeholder")
"""What a model writes into a schema's texts when it has nothing to say."""


@pytest.mark.parametrize("text", [*PLACEHOLDERS, *(text.upper() for text in PLACEHOLDERS)])
def test_a_placeholder_is_no_answer(text: str) -> None:
    found = find_json(json.dumps({"t": text}), TEXT)
    assert found == Miss("its JSON does not fit the schema: its texts are placeholders, not an answer", misfits=True)


def test_a_text_that_the_schema_offers_is_no_placeholder() -> None:
    kinds = schema(t={"enum": ["string", "number"]})
    assert find_json('{"t": "string"}', kinds) == Found(b'{"t":"string"}')
    one = schema(t={"anyOf": [{"const": "todo"}, {"type": "null"}]})
    assert find_json('{"t": "todo"}', one) == Found(b'{"t":"todo"}')


def test_one_real_text_among_placeholders_is_an_answer() -> None:
    listed = canon.dumps({"type": "array", "items": {"type": "string"}}).decode()
    assert find_json('["...", "real"]', listed) == Found(b'["...","real"]')
    assert find_json("[]", listed) == Found(b"[]")
    nested = canon.dumps({"type": "object"}).decode()
    assert isinstance(find_json('{"x": ["<name>", {"y": "..."}]}', nested), Miss)


def test_the_schema_echoed_is_no_answer() -> None:
    loose = canon.dumps({"type": "object"}).decode()
    assert find_json(loose, loose) == Miss(
        "its JSON does not fit the schema: it is the schema itself, not an answer", misfits=True
    )


@pytest.mark.parametrize(
    ("reply", "alone"),
    [
        ('{"a": 1}', True),
        ('\n```json\n{"a": 1}\n```\n', True),
        ('I quote: {"a": 1}', False),
        ('I quote:\n```\n{"a": 1}\n```', False),
        ('```\n{"a": 1}\n```\nNot mine.', False),
        ('```\n{"a": 1}\n```\n```\n{"a": 1}\n```', False),
    ],
)
def test_a_value_beside_other_words_may_be_a_quotation(reply: str, alone: bool) -> None:  # noqa: FBT001 - a case
    assert find_json(reply, A) == ONE
    assert find_json(reply, A, alone=True) == (ONE if alone else NONE)


def test_more_places_than_can_be_looked_at_are_a_miss_and_none_is_guessed() -> None:
    many = Miss("it holds more than 1,000 places that may be JSON")
    assert find_json("[] " * 999 + '{"a": 1}', A) == ONE
    assert find_json("[] " * 1_000 + '{"a": 1}', A) == many
    assert find_json('{"a": 1}' + " []" * 1_000, A) == many


MIB = 1 << 20
HOSTILE = {
    "opening brackets": "[" * MIB,
    "opening braces": "{" * MIB,
    "empty lists": "[]" * (MIB // 2),
    "open lists": "[1," * (MIB // 3),
    "open objects": '{"a":' * (MIB // 5),
    "open texts": '["' * (MIB // 2),
    "backslashes": '["' + "\\" * MIB,
    "tildes": "~" * (MIB // 2) + "\n" + "x" * (MIB // 2),
    "fences of two kinds": "```\n~~~\n" * (MIB // 8),
    "fences of every length": "".join("`" * n + "\n" for n in range(3, 1_400)),
    "closing brackets": "]" * MIB,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_mebibyte_of_anything_takes_bounded_time(text: str) -> None:
    began = time.process_time()
    assert isinstance(find_json(text, A), Miss)
    # linear work takes a second or two on a slow machine, quadratic would take hours
    assert time.process_time() - began < 20


def test_digits_without_end_are_a_miss() -> None:
    assert find_json('{"a": 1' + "0" * 5_000 + "}", A) == NONE


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
_noise = st.text(alphabet='ab{}[]"`~\\\n:, 1', max_size=60)


@given(st.text() | _noise | st.text(alphabet=st.characters(categories=["Cs", "Cc", "Ps"])))
def test_no_text_makes_it_raise(text: str) -> None:
    for alone in (False, True):
        assert isinstance(find_json(text, A, alone=alone), Found | Miss)


@given(_noise, st.integers(), _noise)
def test_what_is_found_stands_in_the_text_and_fits(before: str, number: int, after: str) -> None:
    found = find_json(f'{before}{{"a": {number}}}{after}', A)
    if isinstance(found, Found):
        value = json.loads(found.json)
        assert list(value) == ["a"]
        assert str(value["a"]) in before + str(number) + after


@given(_json, st.sampled_from(["", "words ", "words\n"]))
def test_a_value_alone_in_a_fence_is_found_whatever_it_holds(value: Any, words: str) -> None:
    found = find_json(f"{words}\n```json\n{json.dumps(value)}\n```\n", '{"type":["object","array","number","boolean"]}')
    if isinstance(found, Found):
        assert found.json == canon.dumps(value)


@given(_json)
def test_a_cut_value_gives_nothing_that_stood_inside_of_it(value: Any) -> None:
    text = json.dumps({"x": value, "y": {"a": 1}})
    for cut in range(1, len(text) - 1):
        assert not isinstance(find_json(text[:cut], A), Found)


@given(st.text(alphabet='ab{}[]"\\`~\n ', max_size=80))
def test_spans_are_balanced_apart_and_in_order(text: str) -> None:
    at = 0
    for span in spans(text):
        at = text.index(span, at) + len(span)
        assert span[0] in "[{"
        assert span[-1] in "]}"
    assert "".join(fences(text)).count("\n") <= text.count("\n")
    assert len(list(only_fence(text))) <= 1
