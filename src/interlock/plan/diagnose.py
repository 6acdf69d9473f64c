"""Findings about a text file: how they are collected, suggested for and shown.

`Source` gathers diagnostics about one file, whatever language it is in; `render` shows one as
`file:line:column: severity: message`, the line, a caret and a hint. Guarantees: what is rendered has no
control characters, the caret stands under the right character (tabs, wide and combining characters
counted), a very long line is cut around the caret, and findings come sorted by place without repeats.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from interlock.errors import Diagnostic, Severity
from interlock.model.workflow import Place

_TAB_WIDTH: Final = 4
_SHOWN_WIDTH: Final = 100
_SHOWN_BEFORE: Final = 60
_LONGEST_WORD: Final = 64
_MOST_OPTIONS: Final = 24
_SHORTEST_KNOWN_BY_REST: Final = 2


class Source:
    """One file's lines and what was found in them."""

    def __init__(self, file: str, lines: Sequence[str]) -> None:
        self.file = file
        self.lines = tuple(lines)
        self._found: set[Diagnostic] = set()
        self._notes: list[tuple[Place, str]] = []
        self.errors = 0
        """How many errors were recorded so far, repeats counted: one that an alias brings twice is one of both."""
        self.mended = 0
        """How many of them leave nothing unknown, since what was meant is clear."""

    def error(self, place: Place, code: str, message: str, hint: str = "") -> None:
        """Record an error at `place`."""
        self.errors += 1
        self._add("error", place, code, message, hint)

    def warning(self, place: Place, code: str, message: str, hint: str = "") -> None:
        """Record a warning at `place`."""
        self._add("warning", place, code, message, hint)

    def note(self, place: Place, message: str) -> None:
        """Record what is no fault, but should be said once per run."""
        self._notes.append((place, message))
        self._add("notice", place, "notice", message, "")

    @property
    def failed(self) -> bool:
        """Whether any error was recorded."""
        return self.errors > 0

    @property
    def unclear(self) -> int:
        """How many errors there are so far that leave something unknown."""
        return self.errors - self.mended

    @property
    def count(self) -> int:
        """How many findings there are so far."""
        return len(self._found)

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Return everything found, sorted by place."""
        return tuple(sorted(self._found))

    def notices(self) -> tuple[str, ...]:
        """Return the notes as `line n: text`, sorted by place."""
        return tuple(f"line {place.line}: {message}" for place, message in sorted(set(self._notes)))

    def _add(self, severity: Severity, place: Place, code: str, message: str, hint: str) -> None:
        line = self.lines[place.line - 1] if 0 < place.line <= len(self.lines) else ""
        self._found.add(
            Diagnostic(
                file=self.file,
                line=place.line,
                column=place.column,
                severity=severity,
                code=code,
                message=message,
                hint=hint,
                length=max(1, place.length),
                source_line=line,
            )
        )


def nearest(word: str, options: Iterable[str]) -> str:
    """Return the option nearest to `word`, or an empty string when none is near."""
    if len(word) > _LONGEST_WORD:
        return ""
    known = list(options)
    folded = {option.casefold(): option for option in reversed(known)}
    import difflib  # noqa: PLC0415 - only a slip needs it

    if near := difflib.get_close_matches(word, known, n=1):
        return near[0]
    near = difflib.get_close_matches(word.casefold(), folded, n=1)
    return folded[near[0]] if near else next((option for option in known if is_one_slip(word, option)), "")


def is_one_slip(word: str, option: str) -> bool:
    """Tell whether `word` is `option` with one letter too many, too few, or wrong, or with two of them swapped."""
    a, b = word.casefold(), option.casefold()
    start = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    rest, wanted = a[start:], b[start:]
    if not a or not b:
        return False
    if rest[1:] == wanted or rest == wanted[1:]:
        return True
    # of two letters one is too little to know a word by
    wrong = rest[1:] == wanted[1:] and len(b) > _SHORTEST_KNOWN_BY_REST
    return wrong or (rest[:2] == wanted[1::-1] and rest[2:] == wanted[2:])


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """Return `did you mean 'x'?` for the option nearest to `word`, or an empty string when none is near."""
    near = nearest(word, options)
    return f"did you mean '{near}'?" if near else ""


def suggest(word: str, options: Iterable[str]) -> str:
    """Return the nearest option as a question, else the list of options while it is short."""
    known = list(options)
    near = did_you_mean(word, known)
    if near or not known or len(known) > _MOST_OPTIONS:
        return near
    return f"use {listed(known)}"


def listed(words: Sequence[str]) -> str:
    """Return `'a'`, `'a' or 'b'`, `'a', 'b' or 'c'`."""
    quoted = [f"'{word}'" for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def shown(text: str, most: int = 60) -> str:
    """Return `text` as it may stand inside a message: one line, no control characters, not too long."""
    flat = "".join(map(_visible, text.replace("\t", " ")))
    return flat if len(flat) <= most else flat[: most - 3] + "..."


def render(diagnostic: Diagnostic) -> str:
    """Return the diagnostic as text for a person, without a final newline."""
    head = f"{shown(diagnostic.file, 4096)}:{diagnostic.line}:{diagnostic.column}: {diagnostic.severity}: "
    parts = [head + "".join(_visible(character) for character in diagnostic.message)]
    if diagnostic.source_line.strip():
        parts += _pointed(diagnostic)
    if diagnostic.hint:
        parts.append("hint: " + "".join(_visible(character) for character in diagnostic.hint))
    return "\n".join(parts)


def _pointed(diagnostic: Diagnostic) -> tuple[str, str]:
    """Return the source line and the line with the caret."""
    line = diagnostic.source_line
    at = min(max(diagnostic.column - 1, 0), len(line))
    start = 0 if len(line) <= _SHOWN_WIDTH else max(0, at - _SHOWN_BEFORE)
    end = min(len(line), start + _SHOWN_WIDTH)
    before, marked, after = (
        line[start:at],
        line[at : min(at + diagnostic.length, end)],
        line[at + diagnostic.length : end],
    )
    lead = "..." if start else ""
    left = lead + _expand(before, len(lead))
    middle = _expand(marked, _width(left))
    right = _expand(after, _width(left) + _width(middle))
    tail = "..." if end < len(line) else ""
    number = f"{diagnostic.line:5} | "
    caret = " " * _width(left) + "^" + "~" * (_width(middle) - 1)
    return f"{number}{left}{middle}{right}{tail}".rstrip(), f"{' ' * (len(number) - 2)}| {caret}"


def _expand(text: str, column: int) -> str:
    """Return `text` with tabs as spaces and control characters made visible, as it looks from `column` on."""
    out: list[str] = []
    for character in text:
        piece = " " * (_TAB_WIDTH - column % _TAB_WIDTH) if character == "\t" else _visible(character)
        out.append(piece)
        column += _width(piece)
    return "".join(out)


def _visible(character: str) -> str:
    # Cc, Cf, Cs, Zl and Zp could move the cursor, turn the writing direction or fail to encode
    if character.isprintable() or character == " ":
        return character
    return "\N{REPLACEMENT CHARACTER}"


def _width(text: str) -> int:
    return sum(_cell_width(character) for character in text)


def _cell_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
