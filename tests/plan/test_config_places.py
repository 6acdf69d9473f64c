from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from interlock.plan.toml_places import TomlPlaces

TEXT = '''a = 1 # c
"b.c" . d = "x\\"y"
[run]
engine = 'coder'
x = [ "a", # one
  "b]", [1,2], {q = 1, r = "}"} ]
[[t]]
n = 1979-05-27 07:32:00
[[t]]
n = 2
[t.sub]
z = """multi
line"""
w = true'''


def test_every_key_and_value_is_found_where_it_stands() -> None:
    places = TomlPlaces(TEXT)
    lines = TEXT.split("\n")
    found = {path: lines[place.line - 1][place.column - 1 :][: place.length] for path, place in places.values.items()}
    assert found == {
        ("a",): "1",
        ("b.c", "d"): '"x\\"y"',
        ("run", "engine"): "'coder'",
        ("run", "x"): '[ "a", # one',
        ("run", "x", 0): '"a"',
        ("run", "x", 1): '"b]"',
        ("run", "x", 2): "[1,2]",
        ("run", "x", 2, 0): "1",
        ("run", "x", 2, 1): "2",
        ("run", "x", 3): '{q = 1, r = "}"}',
        ("run", "x", 3, "q"): "1",
        ("run", "x", 3, "r"): '"}"',
        ("t", 0, "n"): "1979-05-27 07:32:00",
        ("t", 1, "n"): "2",
        ("t", 1, "sub", "z"): '"""multi',
        ("t", 1, "sub", "w"): "true",
    }
    assert places.key(("t", 1, "sub", "missing")) == places.keys[("t", 1, "sub")]
    assert places.value(("run",)) == places.keys[("run",)]
    assert (places.key(("nothing",)).line, places.key(()).column) == (1, 1)


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    found = {path}
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        found |= _paths(inner, (*path, key))
    return found


_KEY = st.sampled_from(["a", "b-c", '"x.y"', "'q r'", '"\\u00e9"', "a.b", '"]" . c'])
_LEAF = st.sampled_from(['"s"', "'#'", "3", "true", '"""m\n]"""', "'''n\n'''", '"\\\\"', "1979-05-27", "-1.5e3"])
_VALUE = st.recursive(
    _LEAF,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda vs: "[ " + ",\n # c\n ".join(vs) + "\n]"),
        st.lists(inner, max_size=2).map(lambda vs: "{ " + ", ".join(f"k{i} = {v}" for i, v in enumerate(vs)) + " }"),
    ),
    max_leaves=5,
)
_LINE = st.one_of(
    st.tuples(_KEY, _VALUE).map(lambda kv: f"{kv[0]} = {kv[1]}"),
    _KEY.map(lambda k: f"[{k}]"),
    _KEY.map(lambda k: f"[[ {k} ]] # c"),
)


@given(st.lists(_LINE, max_size=6))
def test_every_path_of_any_document_has_a_place(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    places = TomlPlaces(text)
    known = places.keys.keys() | places.values.keys() | {()}
    assert _paths(document) <= known
