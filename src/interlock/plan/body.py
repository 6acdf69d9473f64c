"""The Markdown body -> one section per step: its prose and its rubric.

Guarantees: CommonMark decides what a heading is, so `##` inside of fences, quotes, lists and HTML does not
count; prose and rubric are the text between headings byte for byte; every `##` is a declared step id.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import msgspec

from interlock.model.workflow import Place
from interlock.plan.diagnose import Source, nearest, shown, suggest
from interlock.plan.document import Document

MAX_PROSE_BYTES: Final = 262_144
_STEP_LEVEL: Final = "##"
_GATE_LEVEL: Final = "###"


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One step's part of the body. `rubric` is None where there is none or an empty one."""

    id: str
    place: Place
    text: str
    rubric: str | None = None
    rubric_place: Place | None = None
    near_gates: tuple[tuple[str, Place], ...] = ()
    """Titles that are nearly `gate`: of prose perhaps, and perhaps meant to start a rubric."""


class _Heading(msgspec.Struct, frozen=True):
    level: str
    title: str
    place: Place
    first: int
    """Index of its line in the body."""
    end: int
    """Index of the line after it."""


def read_sections(document: Document, step_ids: Sequence[str], *, nameless: bool = False) -> dict[str, Section]:
    """Return the sections of `document` by step id, reporting headings that name no step.

    One whose heading nearly names a step is that step's where it has no other. With `nameless`, some step has no id
    that could be read: a section that is nobody's may be its.
    """
    lines = document.body.split("\n")
    headings = _headings(document, lines)
    starts = [index for index, heading in enumerate(headings) if heading.level == _STEP_LEVEL]
    _report_stray_gates(document.source, headings[: starts[0]] if starts else headings)
    found: dict[str, Section] = {}
    guessed: dict[str, Section] = {}
    for index, following in itertools.pairwise([*starts, len(headings)]):
        start = headings[index]
        end = headings[following].first if following < len(headings) else len(lines)
        inner = [heading for heading in headings[index + 1 : following] if heading.level == _GATE_LEVEL]
        section = _section(document.source, lines, start, inner, end)
        if start.title not in step_ids:
            meant = nearest(start.title, step_ids)
            guessed.setdefault(meant, section)
            if meant or not nameless:
                _report_unknown(document.source, start, step_ids)
        elif _is_first(document.source, start, found):
            found[start.title] = section
    guessed.pop("", None)
    return guessed | found


def _is_first(source: Source, start: _Heading, found: dict[str, Section]) -> bool:
    if start.title in found:
        message = f"a second section '## {shown(start.title)}'"
        source.error(
            start.place, "duplicate-section", message, f"the first stands on line {found[start.title].place.line}"
        )
        return False
    return True


def _report_unknown(source: Source, start: _Heading, step_ids: Sequence[str]) -> None:
    hint = suggest(start.title, step_ids) or "add a step of that id, or use '###' for a part of a section"
    source.error(start.place, "unknown-section", f"the section '## {shown(start.title)}' belongs to no step", hint)


def _headings(document: Document, lines: list[str]) -> list[_Heading]:
    if _STEP_LEVEL not in document.body:
        return []
    from markdown_it import MarkdownIt  # noqa: PLC0415 - heavy, and a workflow of commands has no headings

    parser = MarkdownIt("commonmark").disable(["inline", "text_join"])
    tokens = parser.parse(document.body)
    found = []
    for opening, content in itertools.pairwise(tokens):
        # a setext heading (markup "-" or "=") is prose with a rule under it as often as not
        if opening.type != "heading_open" or opening.level or not opening.markup.startswith("#") or not opening.map:
            continue
        first, end = opening.map
        title = content.content.strip()
        column = lines[first].find(title or opening.markup)
        place = Place(document.body_line + first, column + 1, max(1, len(title)))
        found.append(_Heading(opening.markup, title, place, first, end))
    return found


def _section(source: Source, lines: list[str], start: _Heading, inner: list[_Heading], end: int) -> Section:
    gates = [heading for heading in inner if heading.title == "gate"]
    near = tuple((h.title, h.place) for h in inner if h.title != "gate" and h.title.casefold() == "gate")
    for extra in gates[1:]:
        source.error(extra.place, "duplicate-gate", "a second '### gate' in one section", "keep one rubric a step")
    if not gates:
        text = _text(lines, start.end, end)
        return _checked(source, Section(id=start.title, place=start.place, text=text, near_gates=near))
    rubric = _text(lines, gates[0].end, end)
    if not rubric.strip():
        source.warning(gates[0].place, "empty-rubric", "the rubric is empty, so nothing is judged")
    section = Section(
        id=start.title,
        place=start.place,
        text=_text(lines, start.end, gates[0].first),
        rubric=rubric if rubric.strip() else None,
        rubric_place=gates[0].place,
        near_gates=near,
    )
    return _checked(source, section)


def _text(lines: list[str], first: int, end: int) -> str:
    part = "\n".join(lines[first:end])
    # the line break that ends the part's last line belongs to it, except at the end of the file
    return f"{part}\n" if first < end < len(lines) else part


def _checked(source: Source, section: Section) -> Section:
    size = len(section.text.encode()) + len((section.rubric or "").encode())
    if size > MAX_PROSE_BYTES:
        message = f"the section has {size} bytes; a step may have at most {MAX_PROSE_BYTES}"
        source.error(section.place, "prose-too-long", message, "move what is long into a file that the step reads")
    return section


def _report_stray_gates(source: Source, before: list[_Heading]) -> None:
    for heading in before:
        if heading.level == _GATE_LEVEL and heading.title == "gate":
            message = "'### gate' stands before the first section"
            source.error(heading.place, "stray-gate", message, "put it into the section of the step that it judges")
