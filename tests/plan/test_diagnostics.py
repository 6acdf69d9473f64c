"""The exact words of every complaint about a bad file; each case in `diagnostics/` has its text beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.plan.compile import compile_workflow
from interlock.plan.diagnose import render

CASES = sorted((Path(__file__).parent / "diagnostics").glob("*.md"))


@pytest.mark.parametrize("case", CASES, ids=[case.stem for case in CASES])
def test_a_bad_file_is_reported_in_exactly_these_words(case: Path) -> None:
    compiled = compile_workflow(case.read_bytes(), case.name)

    assert compiled.workflow is None
    shown = "\n\n".join(render(found) for found in compiled.diagnostics) + "\n"
    assert shown == case.with_suffix(".txt").read_text("utf-8")


def test_every_case_has_its_expected_text_and_nothing_else_lies_there() -> None:
    folder = Path(__file__).parent / "diagnostics"

    assert {path.stem for path in folder.glob("*.txt")} == {case.stem for case in CASES}
    assert len(CASES) > 15


def test_findings_come_sorted_by_place() -> None:
    for case in CASES:
        found = compile_workflow(case.read_bytes(), case.name).diagnostics
        assert list(found) == sorted(found, key=lambda one: (one.line, one.column))


def test_a_byte_that_is_not_utf8_is_shown_at_its_place() -> None:
    found = compile_workflow(b"---\nsteps: []\nname: caf\xe9\n---\n", "a.md").diagnostics

    assert [one.code for one in found] == ["not-utf8"]
    assert render(found[0]) == (
        "a.md:3:10: error: not UTF-8: byte 0xe9\n"
        "    3 | name: caf\N{REPLACEMENT CHARACTER}\n"
        "      |          ^\n"
        "hint: save the file as UTF-8"
    )


def test_utf16_is_named() -> None:
    found = compile_workflow("---\nsteps: []\n---\n".encode("utf-16"), "a.md").diagnostics

    assert [(one.line, one.column, one.hint) for one in found] == [(1, 1, "the file is UTF-16; save it as UTF-8")]
