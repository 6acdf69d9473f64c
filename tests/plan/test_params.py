from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from interlock.errors import UsageError
from interlock.model.canon import dumps
from interlock.model.plan import Param
from interlock.plan.params import coerce_params, parse_params_file
from interlock.plan.schema_check import DIALECT, TYPES, is_plain


def param(name: str, schema: Any = None, **more: Any) -> Param:
    return Param(name=name, schema_json=dumps({} if schema is None else schema).decode(), **more)


BASE = param("base", {"type": "string"}, default_json='"main"')
COUNT = param("count", {"type": "integer", "minimum": 1})


def refusal(*params: Param, **kinds: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        coerce_params(params, **kinds)
    return caught.value


def test_defaults_hold_and_an_optional_param_without_one_is_left_out() -> None:
    assert coerce_params((BASE, COUNT)) == {"base": "main"}


def test_the_command_line_beats_given_values_and_these_the_file() -> None:
    values: dict[str, Any] = {"file_values": {"base": "file", "count": 1}, "given": {"count": 2}}
    assert coerce_params((BASE, COUNT), **values) == {"base": "file", "count": 2}
    assert coerce_params((BASE, COUNT), [("count", "3")], **values) == {"base": "file", "count": 3}


@pytest.mark.parametrize(
    ("schema", "texts", "value"),
    [
        ({"type": "string"}, ["5"], "5"),
        ({"type": "string"}, [""], ""),
        ({"type": "string"}, ["a=b"], "a=b"),
        ({"type": "integer"}, ["5"], 5),
        ({"type": "integer"}, ["123456789012345678901234567890"], 123456789012345678901234567890),
        ({"type": "number"}, ["5"], 5),
        ({"type": "number"}, ["1.5e3"], 1500.0),
        ({"type": "boolean"}, ["true"], True),
        ({"type": "null"}, ["null"], None),
        ({"type": ["integer", "string"]}, ["5"], 5),
        ({"type": ["integer", "string"]}, ["five"], "five"),
        ({"type": ["string", "null"]}, ["null"], None),
        ({"type": "object"}, ['{"a": 1}'], {"a": 1}),
        ({"type": "array"}, ["a"], ["a"]),
        ({"type": "array"}, ["[1, 2]"], [1, 2]),
        ({"type": "array"}, ["a", "b"], ["a", "b"]),
        ({"type": "array", "items": {"type": "integer"}}, ["1", "2"], [1, 2]),
        ({"type": "array", "items": {"type": "string"}}, ["1"], ["1"]),
        ({"enum": [1, 2]}, ["2"], 2),
        ({"enum": ["1", "2"]}, ["2"], "2"),
        ({"const": True}, ["true"], True),
        ({}, ["5"], "5"),
        (True, ["5"], "5"),
        ({"anyOf": [{"type": "integer"}, {"type": "object"}]}, ["5"], 5),
    ],
)
def test_texts_become_what_the_schema_says(schema: Any, texts: list[str], value: Any) -> None:
    found = coerce_params([param("x", schema)], [("x", text) for text in texts])
    assert found == {"x": value}
    assert type(found["x"]) is type(value)


def test_all_faults_are_told_in_one_error() -> None:
    error = refusal(
        BASE,
        COUNT,
        param("who", {"type": "string"}, required=True),
        cli=[("count", "0"), ("bsae", "x"), ("base", "a"), ("base", "b")],
        given={"zzz": 1},
    )
    assert error.code == "invalid-params"
    assert str(error) == (
        "5 faults in the params: there is no param 'zzz' (use 'base', 'count' or 'who'); "
        "there is no param 'bsae' (did you mean 'base'); param 'base' was given 2 times, but it isn't a list; "
        "param 'count': 0 is less than the minimum of 1; param 'who' is required"
    )
    assert error.hint == "give it with -p who=VALUE or --params-file FILE"


def test_a_single_fault_stands_alone() -> None:
    error = refusal(COUNT, cli=[("count", "many")])
    assert str(error) == "param 'count' must be a whole number, not 'many'"
    assert error.hint == ""
    inner = param("x", {"type": "array", "items": {"properties": {"n": {"type": "integer"}}}})
    assert str(refusal(inner, given={"x": [{"n": "a"}]})) == 'param \'x\' at [0].n: "a" is not of type "integer"'


@pytest.mark.parametrize("given", [{"cli": [("hwo", "x")]}, {"given": {"wh": "x"}}, {"file_values": {"Who": "x"}}])
def test_a_required_param_that_is_only_misspelled_is_not_said_to_be_missing(given: dict[str, Any]) -> None:
    who = param("who", {"type": "string"}, required=True)
    (name,) = (name for part in given.values() for name in dict(part))
    assert str(refusal(who, **given)) == f"there is no param '{name}' (did you mean 'who')"
    assert "param 'who' is required" in str(refusal(who, cli=[("zzz", "x")]))


def test_a_workflow_without_params_says_so() -> None:
    assert str(refusal(cli=[("a", "1")])) == "there is no param 'a' (the workflow declares no params)"


def test_values_that_are_not_json_are_refused() -> None:
    assert str(refusal(param("x"), given={"x": {1}})) == "param 'x' is not JSON: a set is not JSON"
    assert "NaN" in str(refusal(param("x"), given={"x": float("nan")}))


def test_the_value_of_a_secret_is_not_in_the_error() -> None:
    secret = param("token", {"type": "string", "maxLength": 3}, secret=True)
    error = refusal(secret, cli=[("token", "hunter22")])
    assert str(error) == "param 'token': its value is longer than 3 characters"


def test_formats_are_asserted() -> None:
    assert "date" in str(refusal(param("d", {"type": "string", "format": "date"}), cli=[("d", "soon")]))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (b'{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        (b"\xef\xbb\xbf{}", {}),
        (b"a: 1\nb: [x, on, 10:00]\n", {"a": 1, "b": ["x", "on", "10:00"]}),
        (b"a: 2024-01-01\r\n", {"a": "2024-01-01"}),
        (b"version: 1.10\nother: 1.10\n", {"version": "1.10", "other": 1.1}),
        (b'{"version": null}', {"version": None}),
        (b"version: null\n", {"version": None}),
        (b"version: ~\n", {"version": None}),
        (b"version: 'null'\n", {"version": "null"}),
    ],
)
def test_a_params_file_is_json_or_yaml(text: bytes, values: Any) -> None:
    assert parse_params_file(text, "p.yaml", [param("version", {"type": "string"})]) == values


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("p.yml", b"- a\n", "can't use the params file p.yml: it must hold a mapping of param names to values"),
        ("p.yml", b"", "can't use the params file p.yml: it must hold a mapping of param names to values"),
        (
            "p.json",
            b'{"a": 1,}',
            "can't use the params file p.json: it is not JSON: Illegal trailing comma before end of object",
        ),
        ("p.json", b'{"a": 1, "a": 2}', 'can\'t use the params file p.json: it is not JSON: duplicate key "a"'),
        ("p.yml", b"a: '\xff'", "can't use the params file p.yml: it is not UTF-8 at byte 4"),
        ("p.yml", b"a: 1\na: 2\n", "can't use the params file p.yml: it is neither JSON nor YAML: "),
        ("p.yml", b"a: [1\n", "can't use the params file p.yml: it is neither JSON nor YAML: "),
        ("p.bin", bytes(range(256)), "can't use the params file p.bin: it is not UTF-8 at byte 128"),
        ("p.yml", b"a: .nan\n", "can't use the params file p.yml: it is neither JSON nor YAML: infinities and NaN"),
    ],
)
def test_a_params_file_that_is_neither_is_refused(file: str, text: bytes, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_params_file(text, file)
    assert str(caught.value).startswith(message.partition(": Illegal")[0])
    assert caught.value.hint == "write one `name: value` a line, or a JSON object"


@given(st.text(), st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"]))
def test_any_text_gives_a_value_that_fits_or_one_error(text: str, kind: str) -> None:
    declared = param("x", {"type": kind})
    try:
        values = coerce_params([declared], [("x", text)])
    except UsageError:
        return
    assert coerce_params([declared], given=json.loads(dumps(values))) == values


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(value=VALUES, kind=st.sampled_from(TYPES))
def test_a_type_that_stands_alone_is_judged_as_any_other_schema(value: Any, kind: str) -> None:
    def judged(schema: Any) -> str | None:
        try:
            coerce_params([param("a", schema)], given={"a": value})
        except UsageError as error:
            return error.message
        return None

    assert judged({"type": kind}) == judged({"type": kind, "title": "more than a type"})


@pytest.mark.parametrize("kind", TYPES)
def test_a_type_that_stands_alone_needs_no_meta_schema(kind: str) -> None:
    assert list(Draft202012Validator({"$ref": DIALECT}).iter_errors({"type": kind})) == []
    assert is_plain({"type": kind})


@pytest.mark.parametrize("schema", [True, {}, {"type": "text"}, {"type": ["string"]}, {"type": "string", "x": 1}])
def test_no_other_schema_is_plain(schema: Any) -> None:
    assert not is_plain(schema)


@pytest.mark.parametrize(
    ("schema", "text", "why"),
    [
        ({"type": "object"}, '{"a":1,"a":2}', """a JSON object: duplicate key "a\""""),
        (
            {"type": "object"},
            "{a: 1}",
            "a JSON object: Expecting property name enclosed in double quotes at line 1 column 2",
        ),
        ({"type": "object"}, "3", "a JSON object, not '3'"),
        ({"type": "boolean"}, "True", "true or false, not 'True'"),
        ({"type": "number"}, "1x", "a number, not '1x'"),
        ({"type": ["null", "integer"]}, "1.5", "a whole number or null, not '1.5'"),
        ({"type": "integer"}, "9" * 5000, "a whole number: a number of more than 4,300 digits"),
        ({"type": "array"}, "[1,", "a JSON list: Expecting value at line 1 column 4"),
        ({"type": "integer", "enum": [1, 2]}, "x" * 60, "a whole number, not '" + "x" * 60 + "'"),
    ],
)
def test_a_text_that_is_not_what_it_has_to_be_is_told_with_the_reason(
    schema: dict[str, Any], text: str, why: str
) -> None:
    assert str(refusal(param("x", schema), cli=[("x", text)])) == f"param 'x' must be {why}"


def test_each_text_of_a_list_is_told_with_its_place() -> None:
    declared = param("x", {"type": "array", "items": {"type": "integer"}})
    error = refusal(declared, cli=[("x", "1"), ("x", "two"), ("x", "3.5")])
    assert str(error) == (
        "2 faults in the params: param 'x' at [1] must be a whole number, not 'two'; "
        "param 'x' at [2] must be a whole number, not '3.5'"
    )


def test_of_a_secret_it_is_not_told_what_was_given() -> None:
    declared = param("token", {"type": "integer"}, secret=True)
    assert str(refusal(declared, cli=[("token", "hush")])) == "param 'token' must be a whole number"


def test_of_a_choice_it_is_told_what_there_is() -> None:
    assert str(refusal(param("x", {"enum": [1, 2]}), cli=[("x", "3x")])) == "param 'x': \"3x\" is not one of 1 or 2"
