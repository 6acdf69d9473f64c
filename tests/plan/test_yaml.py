"""YAML 1.2 by its core schema, with source texts kept and every blow-up refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.plan.diagnose import Source
from interlock.plan.scalars import describe, to_json
from interlock.plan.yaml import Mapping, Node, Scalar, compose

PLAIN = re.compile(r"[A-Za-z0-9_+.~-][A-Za-z0-9_+.~/-]*")


def read(text: str, schema: object = None) -> tuple[Any, list[str]]:
    source = Source("f.md", text.split("\n"))
    node = compose(text, source)
    value = None if node is None else to_json(node, source, schema)
    return value, [found.message for found in source.diagnostics()]


def value_node(text: str) -> Node:
    node = compose(f"k: {text}", Source("f.md", [text]))
    assert isinstance(node, Mapping)
    found = node.get("k")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("yes", "yes"),
        ("10:00", "10:00"),
        ("2026-01-31", "2026-01-31"),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("0123456", 123456),
        ("1.10", 1.1),
        ("0o17", 15),
        ("0x1F", 31),
        ("-12", -12),
        (".5e1", 5.0),
        ("~", None),
        ("null", None),
        ("", None),
        ("True", True),
        ("false", False),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("! 1", "1"),
        ("!!int '7'", 7),
        ("99999999999999999999", 99999999999999999999),
    ],
)
def test_plain_scalars_follow_the_core_schema(text: str, value: object) -> None:
    assert read(f"k: {text}") == ({"k": value}, [])


@pytest.mark.parametrize("text", ["1.10", "0123456", "true", "null", "0x1F", "1e3", "2026-01-31", "no"])
def test_where_text_is_wanted_the_source_text_is_taken(text: str) -> None:
    wanted = {"properties": {"k": {"type": "string"}, "l": {"items": {"type": "string"}}}}

    assert read(f"k: {text}\nl: [{text}]", wanted) == ({"k": text, "l": [text]}, [])
    assert read(f"k: {text}", {"additionalProperties": {"type": "string"}}) == ({"k": text}, [])
    assert read(f"k: {text}", {"properties": 5, "additionalProperties": False})[1] == []


@given(st.from_regex(PLAIN, fullmatch=True))
def test_a_plain_scalar_keeps_its_source_text(text: str) -> None:
    if text in {"-", "--", "---", "...", "<<"}:
        return
    node = value_node(text)

    assert isinstance(node, Scalar)
    assert node.text == text
    assert node.place.length == len(text)


@given(st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs", "Cn", "Cc", "Co"]), max_size=40))
def test_double_quoted_text_of_any_characters_survives(text: str) -> None:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    node = value_node(f'"{escaped}"')

    assert isinstance(node, Scalar)
    assert node.text == text


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\u2029", "\ufeff"])
def test_only_lf_breaks_lines(character: str) -> None:
    value, messages = read(f"a: x{character}y\nb: {{}}\nb: 1")

    assert value == {"a": f"x{character}y", "b": {}}
    assert messages == ["duplicate key 'b'"]


def test_a_text_that_uses_all_private_characters_is_refused() -> None:
    everything = "".join(map(chr, range(0xE000, 0xF8FF)))

    assert read(f"a: '{everything}\u2028'")[1] == ["the text uses the whole private use area of Unicode"]


def test_aliases_stand_for_their_node() -> None:
    assert read("a: &x { k: &y [1, 2] }\nb: *x\nc: *y\n&n d: *n")[0] == {
        "a": {"k": [1, 2]},
        "b": {"k": [1, 2]},
        "c": [1, 2],
        "d": "d",
    }


def test_a_billion_laughs_are_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]

    assert read("\n".join(lines))[1] == ["aliases repeat more than 10000 nodes"]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 65 + "]" * 65,
        "&d " + "[" * 40 + "]" * 40 + "\n",
        "a: &d " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 30 + "*d" + "]" * 30,
    ],
)
def test_more_than_64_levels_are_refused(text: str) -> None:
    messages = read(text)[1]

    assert messages == ([] if text.startswith("&") else ["more than 64 levels of nesting"])


def test_64_levels_are_fine() -> None:
    assert read("[" * 63 + "x" + "]" * 63)[1] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x [*x]", "the alias '*x' stands inside of itself"),
        ("a: .inf", "infinities and NaN are not JSON"),
        ("a: -1e999", "a number beyond what JSON readers can hold"),
        ("a: " + "9" * 1001, "a number of more than 1000 characters"),
        ("a: !!map [x]", "the tag '!!map' is not used here"),
        ("a: !!set {x}", "the tag '!!set' is not used here"),
        ('a: "\\UFFFFFFFF"', "not YAML: what follows here can't be read"),
        ("%YAML 1.1\na: on", "a line that is neither a key nor part of the value above"),
        ("a: {b: c, , d}", "not YAML: expected the node content, but found ',' while parsing a flow node"),
        ("? [x]\n: y", "a key must be text, not a list or a mapping"),
        ("a:\n- b\nc", "a line without ':'"),
        ("a: 1\n--- 2", "a second YAML document"),
    ],
)
def test_what_is_not_to_be_is_reported(text: str, message: str) -> None:
    assert read(text)[1] == [message]


def test_escaped_surrogate_pairs_are_one_character_and_lone_ones_are_refused() -> None:
    assert read('a: "\\ud83d\\ude00 é"') == ({"a": "\U0001f600 é"}, [])
    assert read('a: "\\ud83d\ufffd"')[1] == ["a lone surrogate is not text"]


def test_nothing_composes_to_nothing() -> None:
    assert compose("# only\n", Source("f.md", [])) is None


def test_tabs_are_reported_in_one_pass_with_what_lies_behind_them() -> None:
    value, messages = read("a:\n\tb: 1\n\tb: 2")

    assert value == {"a": {"b": 1}}
    assert messages == ["a tab where YAML takes only spaces", "a tab where YAML takes only spaces", "duplicate key 'b'"]


def test_tabs_inside_of_text_are_text() -> None:
    assert read("a: |\n  x\n  \ty\nb: 'x\ty'") == ({"a": "x\n\ty\n", "b": "x\ty"}, [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "an empty list"),
        ("[1]", "a list"),
        ("{}", "a mapping"),
        ("", "nothing"),
        ("''", "an empty text"),
        ("5", "the number 5"),
        ("true", "true"),
        ("~", "~"),
        ("'5'", "'5'"),
        (".nan", "'.nan'"),
    ],
)
def test_messages_say_what_was_found(text: str, words: str) -> None:
    assert describe(value_node(text)) == words
