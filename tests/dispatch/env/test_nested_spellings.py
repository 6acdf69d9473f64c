"""No value survives in any spelling, nor in one spelling of another, however freely the writers chose and it is cut."""

from __future__ import annotations

import base64
import json
import random
import time
from collections.abc import Callable

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.dispatch.env.streams import cut, streamed

from interlock.dispatch.env.redact import PatternRedactor
from interlock.dispatch.env.redact_base import MIN_LENGTH

Writer = Callable[[bytes], bytes]
MARK = b"[redacted:TOKEN]"
SECRET = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=MIN_LENGTH, max_size=40)
AROUND = st.text(st.characters(codec="utf-8"), max_size=60)


def json_by(chance: random.Random, share: float) -> Writer:
    """A JSON writer that escapes what it must and any share of the rest, in whatever case of hex."""

    def one(code: int) -> str:
        text = f"{code:04x}"
        return "\\u" + "".join(chance.choice((digit, digit.upper())) for digit in text)

    def write(raw: bytes) -> bytes:
        out = []
        for character in raw.decode():
            must = json.dumps(character, ensure_ascii=False)[1:-1]
            if character == "/" and chance.random() < 0.5:
                must = "\\/"
            units = character.encode("utf-16-be")
            codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
            out.append("".join(map(one, codes)) if chance.random() < share else must)
        return "".join(out).encode()

    return write


def url_by(chance: random.Random, share: float) -> Writer:
    """A URL encoder that leaves letters alone or not, in whatever case of hex."""

    def write(raw: bytes) -> bytes:
        out = []
        for byte in raw:
            if bytes([byte]).isalnum() and chance.random() >= share:
                out.append(chr(byte))
            else:
                out.append("%" + "".join(chance.choice((d, d.upper())) for d in f"{byte:02x}"))
        return "".join(out).encode()

    return write


def base64_by(width: int, end: bytes, url: bool) -> Writer:  # noqa: FBT001 - drawn by Hypothesis
    def write(raw: bytes) -> bytes:
        text = base64.urlsafe_b64encode(raw) if url else base64.b64encode(raw)
        return end.join(text[at : at + width] for at in range(0, len(text), width)) + end

    return write


def usual_json(raw: bytes) -> bytes:
    return json.dumps(raw.decode())[1:-1].encode()


def go_json(raw: bytes) -> bytes:
    text = json.dumps(raw.decode(), ensure_ascii=False)[1:-1]
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e").encode()


def usual_url(raw: bytes) -> bytes:
    return b"".join(bytes([b]) if bytes([b]).isalnum() or b in b"-._~" else b"%%%02X" % b for b in raw)


@st.composite
def freely(draw: st.DrawFn) -> Writer:
    """Writers as free as their formats let them be."""
    chance = random.Random(draw(st.integers(0, 99)))  # noqa: S311 - what a writer escapes, not secrets
    share = draw(st.sampled_from([0.0, 0.3, 1.0]))
    return draw(st.sampled_from([json_by(chance, share), url_by(chance, share), draw(lines_of_base64())]))


@st.composite
def lines_of_base64(draw: st.DrawFn) -> Writer:
    width = draw(st.sampled_from([48, 60, 64, 76, 10_000]))
    return base64_by(width, draw(st.sampled_from([b"\n", b"\r\n"])), draw(st.booleans()))


def check(secret: str, before: str, after: str, writers: list[Writer], places: list[int]) -> None:
    """The text is written by one writer after the other; what is left of it must not give the value back."""
    redactor = PatternRedactor({"TOKEN": secret})
    assume(redactor.text((before + after).encode()) == (before + after).encode())
    text = (before + secret + after).encode()
    for write in writers:
        text = write(text)
    clean = redactor.text(text)
    assert MARK in clean
    assert streamed(redactor, cut(text, places)) == clean
    # what stays belongs to the text around, but for a character of base64 on each side
    assert redactor.text(clean.replace(MARK, b"|")) == clean.replace(MARK, b"|")


PLACES = st.lists(st.integers(0, 10_000), max_size=8)


@settings(deadline=None)
@given(SECRET, AROUND, AROUND, freely(), PLACES)
@example("p&ss<word>12345", "", "", go_json, [])
def test_no_spelling_survives(secret: str, before: str, after: str, writer: Writer, places: list[int]) -> None:
    check(secret, before, after, [writer], places)


@settings(deadline=None)
@given(SECRET, AROUND, AROUND, freely(), st.integers(0, 3), PLACES)
def test_no_spelling_survives_within_json_or_a_url(
    secret: str, before: str, after: str, writer: Writer, outer: int, places: list[int]
) -> None:
    chance = random.Random(outer)  # noqa: S311 - what a writer escapes, not secrets
    check(secret, before, after, [writer, (json_by if outer % 2 else url_by)(chance, outer / 3)], places)


@settings(deadline=None)
@given(
    SECRET,
    AROUND,
    AROUND,
    st.sampled_from([usual_json, go_json, usual_url]) | lines_of_base64(),
    lines_of_base64(),
    PLACES,
)
def test_no_usual_spelling_survives_within_base64(
    secret: str, before: str, after: str, writer: Writer, outer: Writer, places: list[int]
) -> None:
    check(secret, before, after, [writer, outer], places)


TOKEN = "gho_" + "0aB1cD2eF3" * 9
"""Base64 of it takes two lines of `base64`."""


@pytest.mark.parametrize(
    ("secret", "spelled"),
    [
        ("p&ss<word>12345", rb"p\u0026ss\u003cword\u003e12345"),
        ("p&ss<word>12345", rb"\u0070&ss<word>12345"),
        ("p\u00e4ssword", rb"p\u00E4ssword"),
        ("p\u00abssword", rb"p\u00aBssword"),
        ("pass word/\u00e4", b"pass%20word%2f%C3%a4"),
        ("pass word/\u00e4", b"pass+word%2F%c3%A4"),
        ('say "it"', rb"say \\\"it\\\""),
        ("say 'it' \n now", rb"say 'it' \\n now"),
        ("\U0001f511 of the door", rb"\ud83d\uDD11 of the door"),
        (TOKEN, base64.encodebytes(TOKEN.encode())),
        (TOKEN, base64.encodebytes(TOKEN.encode()).replace(b"\n", b"\r\n")),
        (TOKEN, base64.encodebytes(TOKEN.encode()).replace(b"\n", b"\\n")),
        (TOKEN, base64.encodebytes(TOKEN.encode()).replace(b"\n", b"\\r\\n")),
        (TOKEN, base64.encodebytes(TOKEN.encode()).replace(b"\n", b"\\\\n")),
        (TOKEN, base64.encodebytes(b"user:" + TOKEN.encode()).replace(b"\n", b"\n    ")),
        (TOKEN, base64.b64encode(base64.encodebytes(TOKEN.encode()))),
        ("0~0~0~0~0~0~0~0", base64.b64encode(base64.urlsafe_b64encode(b"00~0~0~0~0~0~0~0"))),
    ],
)
def test_what_common_programs_write_is_found_however_it_is_cut(secret: str, spelled: bytes) -> None:
    redactor = PatternRedactor({"TOKEN": secret})
    text = b"before " + spelled + b"; after"
    clean = redactor.text(text)
    assert MARK in clean
    assert secret[4:].encode() not in clean
    assert len(clean) <= len(b"before ; after") + len(MARK) + 12
    for place in range(len(text)):
        assert streamed(redactor, [text[:place], text[place:]]) == clean


@pytest.mark.parametrize("value", ["1234567", "1.25e-7", "-1234567"])
def test_a_number_in_another_spelling_is_found_where_it_is_read_as_json(value: str) -> None:
    spelled = f"{float(value):.12e}".encode()
    assert json.loads(PatternRedactor({"TOKEN": value}).json(b"[" + spelled + b"]")) == [MARK.decode()]


@pytest.mark.parametrize(
    "unit", [b"\\", b"\\u005c", b"%5C", b"%25", b"A", b"\n", b" ", b"A\n", b"\\u0041", b'\\\\\\"', b"gho_"]
)
def test_a_long_line_costs_no_more_for_each_byte_than_a_short_one(unit: bytes) -> None:
    redactor = PatternRedactor({"TOKEN": TOKEN})
    chunk = (unit * 65_536)[:65_536]

    def took(chunks: int) -> float:
        stream, begun, held = redactor.stream(), time.process_time(), 0
        for _ in range(chunks):
            held += len(chunk) - len(stream.feed(chunk))
            # what is held back is bounded by the value, not by what has come
            assert held < 8_192
        return time.process_time() - begun

    took(1)
    assert took(24) < 12 * max(took(8), 0.004)


def test_base64_of_base64_of_a_value_that_repeats_itself_costs_little_more_than_the_value() -> None:
    redactor = PatternRedactor({"TOKEN": "x" * 40})
    plain = b"x" * 10_000
    encoded = base64.b64encode(base64.b64encode(plain))

    def took(text: bytes) -> float:
        begun = time.process_time()
        assert len(redactor.text(text)) < 100
        return time.process_time() - begun

    assert took(encoded) < 30 * max(took(plain), 0.004)
