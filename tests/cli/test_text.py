"""Text for people: spans, sizes, and that no control character reaches a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.cli.text import clip, compact, count, duration, safe, safe_lines, size


@pytest.mark.parametrize(
    ("ms", "spelled"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h 0 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_a_time_span_is_spelled_as_a_person_would(ms: int, spelled: str) -> None:
    assert duration(ms) == spelled


def test_sizes_and_counts_are_spelled_out() -> None:
    assert [size(n) for n in (1, 2048, 3 * 1024**2, 5 * 1024**3)] == ["1 bytes", "2.0 KiB", "3.0 MiB", "5.0 GiB"]
    assert [count(n, "unit") for n in (0, 1, 2000)] == ["0 units", "1 unit", "2,000 units"]
    assert clip("abcdef", 4) == "abc…"
    assert compact({"a": "\x1b"}) == '{"a":"\\u001b"}'


@given(st.text())
def test_no_control_character_reaches_a_terminal(text: str) -> None:
    shown = safe(text)
    assert all(character.isprintable() or character in "\t " or ord(character) > 0x9F for character in shown)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    shown.encode()


def test_line_ends_survive_where_lines_are_wanted() -> None:
    assert safe("a\nb\r") == "a\\nb\\r"
    assert safe_lines("a\n\x1b]0;x\x07") == "a\n\\x1b]0;x\\x07"
