from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.dispatch.env.streams import cut, streamed

from interlock.dispatch.env.redact import PatternRedactor
from interlock.dispatch.env.redact_base import MIN_LENGTH
from interlock.dispatch.env.spellings import as_bytes, cores, literal_forms

TEXT = st.text(st.characters(codec="utf-8"))
SECRET = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=MIN_LENGTH, max_size=40)
MARK = b"[redacted:TOKEN]"


def spellings(secret: str) -> dict[str, bytes]:
    """Written without the code under test."""
    raw = secret.encode()
    return {
        "raw": raw,
        "json": json.dumps(secret)[1:-1].encode(),
        "json utf-8": json.dumps(secret, ensure_ascii=False)[1:-1].encode(),
        "url": quote(secret, safe="").encode(),
        "url path": quote(secret).encode(),
        "form": quote_plus(secret).encode(),
    }


def encodings(value: str) -> frozenset[bytes]:
    """The spellings that are one encoding away from the value, base64 in either alphabet."""
    plain = cores(as_bytes(value))
    return literal_forms(value) | {*plain, *(core.replace(b"+", b"-").replace(b"/", b"_") for core in plain)}


@given(SECRET, TEXT, TEXT, st.lists(st.integers(0, 10_000), max_size=8))
@example("s3cr3t/+ä", "", "", [1, 2, 3])
def test_no_spelling_of_a_value_survives_however_the_stream_is_cut(
    secret: str, before: str, after: str, places: list[int]
) -> None:
    # a value made of the mark's own letters cannot be told from the mark
    assume(not any(pattern in before.encode() + MARK + after.encode() for pattern in encodings(secret)))
    redactor = PatternRedactor({"TOKEN": secret})
    for spelling in spellings(secret).values():
        text = before.encode() + spelling + after.encode()
        whole = redactor.text(text)
        assert spelling not in whole
        assert streamed(redactor, cut(text, places)) == whole


@pytest.mark.parametrize("text", [b"abcabcabca", b"abcabcabcabca", b"-abcabcabcaabcabca-", b"abcabcabcab"])
def test_a_value_that_overlaps_itself_leaves_no_piece_of_it(text: bytes) -> None:
    redactor = PatternRedactor({"TOKEN": "abcabca"})
    whole = redactor.text(text)
    assert whole.replace(b"[redacted:TOKEN]", b"").strip(b"-") == (b"b" if text.endswith(b"b") else b"")
    for place in range(len(text)):
        assert streamed(redactor, [text[:place], text[place:]]) == whole


@settings(deadline=None, max_examples=30)
@given(SECRET, TEXT, TEXT)
def test_a_stream_that_comes_byte_by_byte_gives_the_same(secret: str, before: str, after: str) -> None:
    redactor = PatternRedactor({"TOKEN": secret})
    for spelling in encodings(secret):
        text = before.encode() + spelling + after.encode()
        assert streamed(redactor, [bytes([byte]) for byte in text]) == redactor.text(text)


@example("999998", b"\x00\t", b"", False)  # noqa: FBT003 - as Hypothesis draws it
@given(SECRET, st.binary(max_size=40), st.binary(max_size=40), st.booleans())
def test_base64_around_a_value_gives_none_of_it_away(secret: str, before: bytes, after: bytes, url: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    text = encode(before + secret.encode() + after)
    clean = PatternRedactor({"TOKEN": secret}).text(text)
    assert MARK in clean
    # at most one character on each side mixes the value's bits with a neighbour's
    left, _, right = clean.partition(MARK)
    assert len(left) <= (len(before) * 8 + 5) // 6 + 1
    assert len(right.rstrip(b"=")) <= (len(after) * 8 + 5) // 6 + 1


@given(st.lists(SECRET, max_size=3), st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_text_without_a_value_comes_back_byte_for_byte(secrets: list[str], text: bytes, places: list[int]) -> None:
    assume(not any(pattern in text for secret in secrets for pattern in encodings(secret)))
    redactor = PatternRedactor((f"S{index}", secret) for index, secret in enumerate(secrets))
    assert redactor.text(text) == text
    assert streamed(redactor, cut(text, places)) == text


def test_values_that_overlap_are_taken_out_as_one() -> None:
    redactor = PatternRedactor({"A": "abcabc", "B": "bcabcX"})
    assert redactor.text(b"-abcabcabcX-abcabcabcabc-") == b"-[redacted:A]-[redacted:A]-"
    assert redactor.text(b"abcabc,abcabc") == b"[redacted:A],[redacted:A]"
    assert streamed(redactor, [bytes([byte]) for byte in b"-abcabcabcX-"]) == b"-[redacted:A]-"


@given(
    st.lists(st.text("abc", min_size=6, max_size=12), min_size=1, max_size=4),
    st.text("abc", max_size=200),
    st.lists(st.integers(0, 200), max_size=20),
)
def test_a_stream_equals_the_whole_text_when_values_overlap(secrets: list[str], text: str, places: list[int]) -> None:
    redactor = PatternRedactor((f"S{index}", secret) for index, secret in enumerate(secrets))
    assert streamed(redactor, cut(text.encode(), places)) == redactor.text(text.encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(JSON, SECRET, st.sampled_from(["value", "key", "inside"]))
def test_redacted_json_is_json_without_the_value(value: Any, secret: str, where: str) -> None:
    held = {"value": [value, secret], "key": {secret: value}, "inside": [value, f"<{secret}>"]}[where]
    assume(not any(pattern in MARK for pattern in encodings(secret)))
    redactor = PatternRedactor({"TOKEN": secret})
    clean = redactor.json(json.dumps(held, ensure_ascii=False).encode())
    json.loads(clean)
    assert redactor.text(clean) == clean
    assert MARK in clean


@pytest.mark.parametrize(
    ("value", "clean"),
    [
        ([123456], ["[redacted:PIN]"]),
        ({"n": 91234567}, {"n": "9[redacted:PIN]7"}),
        ([12345, True, None, 1.5], [12345, True, None, 1.5]),
    ],
)
def test_a_number_that_holds_a_value_becomes_a_string(value: Any, clean: Any) -> None:
    assert json.loads(PatternRedactor({"PIN": "123456"}).json(json.dumps(value).encode())) == clean


def test_a_value_that_looks_like_json_syntax_takes_the_whole_result_with_it() -> None:
    redactor = PatternRedactor({"ODD": '","b","'})
    assert json.loads(redactor.json(b'["a","b","c"]')) == "[redacted:ODD]"


def test_short_values_are_no_patterns_and_are_named() -> None:
    redactor = PatternRedactor({"SHORT": "12345", "LONG": "123456"})
    assert redactor.short_names == ("SHORT",)
    assert redactor.text(b"12345 123456") == b"12345 [redacted:LONG]"


def test_each_line_of_a_value_of_several_lines_is_known() -> None:
    redactor = PatternRedactor({"KEY": '-----BEGIN KEY-----\nMIIEvQ/aBc\n  kAoIB"x+1\nshort\n'})
    assert redactor.text(b'> MIIEvQ/aBc\n> kAoIB"x+1\n> short\n') == b"> [redacted:KEY]\n> [redacted:KEY]\n> short\n"
    assert redactor.json(b'["MIIEvQ\\/aBc","kAoIB\\"x+1"]') == b'["[redacted:KEY]","[redacted:KEY]"]'


def test_the_longest_value_wins_where_one_is_the_start_of_another() -> None:
    redactor = PatternRedactor({"A": "secret", "B": "secret-longer"})
    assert redactor.text(b"secret-longer secret-long") == b"[redacted:B] [redacted:A]-long"
    assert streamed(redactor, [b"secret", b"-lon", b"ger secret-", b"long"]) == b"[redacted:B] [redacted:A]-long"


def test_slashes_and_escapes_are_known_in_either_spelling() -> None:
    redactor = PatternRedactor({"KEY": "ab/cd é\n12"})
    for text in ("ab\\/cd é\\n12", "ab\\/cd \\u00e9\\n12", "ab%2Fcd%20%C3%A9%0A12", "ab%2fcd+%c3%a9%0a12"):
        assert redactor.text(text.encode()) == b"[redacted:KEY]", text


def test_nothing_is_held_back_without_values() -> None:
    stream = PatternRedactor({}).stream()
    assert stream.feed(b"at once") == b"at once"
    assert stream.flush() == b""
