"""How a finding looks to a person: line, caret, hint and suggestions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import Diagnostic
from interlock.model.workflow import Place
from interlock.plan.diagnose import Source, did_you_mean, listed, render, shown, suggest


def one(line: str, column: int, length: int = 1, hint: str = "") -> Diagnostic:
    source = Source("f.md", [line])
    source.error(Place(1, column, length), "some-code", "something is wrong", hint)
    return source.diagnostics()[0]


def test_a_diagnostic_shows_place_line_caret_and_hint() -> None:
    assert render(one("  rnu: echo", 3, 3, "did you mean 'run'?")) == (
        "f.md:1:3: error: something is wrong\n    1 |   rnu: echo\n      |   ^~~\nhint: did you mean 'run'?"
    )


def test_a_warning_says_so_and_a_blank_line_is_not_shown() -> None:
    source = Source("f.md", ["   "])
    source.warning(Place(1, 1), "w", "careful")

    assert render(source.diagnostics()[0]) == "f.md:1:1: warning: careful"
    assert not source.failed


def test_the_caret_counts_tabs_wide_and_combining_characters() -> None:
    assert render(one("\t漢e\u0301x", 5)).splitlines()[1:] == [
        "    1 |     漢e\u0301x",
        "      |        ^",
    ]


def test_a_long_line_is_cut_around_the_caret() -> None:
    rendered = render(one("a" * 300 + "X" + "b" * 300, 301)).splitlines()

    assert rendered[1] == "    1 | ..." + "a" * 60 + "X" + "b" * 39 + "..."
    assert rendered[2] == "      | " + " " * 63 + "^"


def test_control_characters_never_reach_a_terminal() -> None:
    diagnostic = Diagnostic(
        file="f\x1b[2J.md", line=1, column=9, code="c", message="\x07x", hint="\x9bh", source_line="a\x1b\u202eb"
    )

    assert all(character == "\n" or character.isprintable() for character in render(diagnostic))


def test_a_place_outside_of_the_file_has_no_line() -> None:
    source = Source("f.md", ["x"])
    source.error(Place(7, 1), "c", "m")

    assert render(source.diagnostics()[0]) == "f.md:7:1: error: m"


def test_findings_are_sorted_and_said_once() -> None:
    source = Source("f.md", ["x", "y"])
    for place in (Place(2, 1), Place(1, 1), Place(2, 1)):
        source.error(place, "c", "m")

    assert [found.line for found in source.diagnostics()] == [1, 2]
    assert source.count == 2
    assert source.failed


def test_notes_are_no_faults() -> None:
    source = Source("f.md", ["x"])
    source.note(Place(2, 1), "second")
    source.note(Place(1, 1), "first")

    assert source.notices() == ("line 1: first", "line 2: second")
    assert [render(found) for found in source.diagnostics()] == [
        "f.md:1:1: notice: first\n    1 | x\n      | ^",
        "f.md:2:1: notice: second",
    ]
    assert not source.failed


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("rnu", "did you mean 'run'?"),
        ("RUN", "did you mean 'run'?"),
        ("base", "did you mean 'base'?"),
        ("zzz", ""),
        ("r" * 65, ""),
    ],
)
def test_the_nearest_word_is_suggested(word: str, expected: str) -> None:
    assert did_you_mean(word, ["run", "uses", "Base", "base"]) == expected


def test_nothing_is_no_slip_of_a_short_name() -> None:
    assert did_you_mean("", ["a", "run"]) == ""


def test_far_words_get_the_list_while_it_is_short() -> None:
    assert suggest("zzz", ["a", "b"]) == "use 'a' or 'b'"
    assert suggest("zzz", []) == ""
    assert suggest("zzz", [f"option{n}" for n in range(30)]) == ""
    assert listed(["a"]) == "'a'"
    assert listed(["a", "b", "c"]) == "'a', 'b' or 'c'"


def test_a_quoted_text_is_one_short_line() -> None:
    assert shown("a\nb\tc") == "a\N{REPLACEMENT CHARACTER}b c"
    assert shown("x" * 100) == "x" * 57 + "..."


@given(st.text(), st.integers(-3, 400), st.integers(0, 400))
def test_any_line_and_place_can_be_rendered(line: str, column: int, length: int) -> None:
    rendered = render(one(line.replace("\n", ""), column, length))

    assert rendered.encode("utf-8")
    assert len(rendered.splitlines()) in {1, 3}
