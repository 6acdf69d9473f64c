"""Where each key and value of a TOML document stands, which no parser of the standard library tells.

Works on documents that `tomllib` has accepted already, so it only has to find its way, not to judge. A path is
the tuple of keys from the root; entries of arrays and of `[[tables]]` are numbered from 0.
"""

from __future__ import annotations

import bisect
import re
import tomllib
from typing import Any, Final

from interlock.model.workflow import Place

Path = tuple[str | int, ...]
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_BLANK: Final = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_STRING: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{1,2}(?!"))?' + r"|'''.*?'''(?:'{1,2}(?!'))?" + r'|"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR: Final = re.compile(r"[^,\]}\n#]*")


class TomlPlaces:
    """`keys[path]` and `values[path]` of one document; a path that was not written is missing."""

    def __init__(self, text: str) -> None:
        self.keys: dict[Path, Place] = {}
        self.values: dict[Path, Place] = {}
        _Scanner(text, self).document()

    def key(self, path: Path) -> Place:
        """The place of the key at `path`, else of the nearest key above it, else the document's start."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.keys:
                return self.keys[path[:end]]
        return Place(line=1, column=1)

    def value(self, path: Path) -> Place:
        """The place of the value at `path`, else of its key."""
        return self.values.get(path) or self.key(path)

    def move(self, path: Path, to: Path) -> None:
        """Let what stands at `path` and below be found at `to`, where nothing stands already."""
        for places in (self.keys, self.values):
            below = [key for key in places if key[: len(path)] == path]
            for key in below:
                places.setdefault((*to, *key[len(path) :]), places[key])


class _Scanner:
    def __init__(self, text: str, found: TomlPlaces) -> None:
        self.text = text
        self.found = found
        self.at = 0
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.tables: dict[Path, int] = {}
        """How many `[[tables]]` of that path there were so far."""

    def place(self, start: int, end: int) -> Place:
        line = bisect.bisect_right(self.starts, start)
        first_line = self.text[start:end].partition("\n")[0]
        return Place(line=line, column=start - self.starts[line - 1] + 1, length=max(1, len(first_line)))

    def skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            return ""
        self.at = match.end()
        return match.group()

    def document(self) -> None:
        table: Path = ()
        while True:
            self.skip(_BLANK)
            if self.at >= len(self.text):
                return
            if self.text[self.at] == "[":
                table = self.header()
            else:
                self.pair(table)

    def header(self) -> Path:
        array = self.text.startswith("[[", self.at)
        self.at += 2 if array else 1
        path: Path = ()
        parts = self.dotted_key()
        for number, (part, place) in enumerate(parts):
            path = (*path, part)
            self.found.keys.setdefault(path, place)
            last = number == len(parts) - 1
            if array and last:
                self.tables[path] = self.tables.get(path, 0) + 1
            if path in self.tables:
                path = (*path, self.tables[path] - 1)
                self.found.keys.setdefault(path, place)
        self.skip(_SPACE)
        self.at += 2 if array else 1
        return path

    def dotted_key(self) -> list[tuple[str, Place]]:
        parts: list[tuple[str, Place]] = []
        while True:
            self.skip(_SPACE)
            start = self.at
            raw = self.skip(_STRING)
            part = _unquoted(raw) if raw else self.skip(_BARE)
            parts.append((part, self.place(start, self.at)))
            self.skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return parts
            self.at += 1

    def pair(self, table: Path) -> None:
        path = table
        for part, place in self.dotted_key():
            path = (*path, part)
            self.found.keys.setdefault(path, place)
        self.at += 1  # the "="
        self.skip(_SPACE)
        self.value(path)

    def value(self, path: Path) -> None:
        start = self.at
        first = self.text[start : start + 1]
        if first == "[":
            self.sequence(path, "]")
        elif first == "{":
            self.sequence(path, "}")
        elif not self.skip(_STRING):
            self.at = start + len(self.skip(_SCALAR).rstrip())
        self.found.values[path] = self.place(start, self.at)

    def sequence(self, path: Path, close: str) -> None:
        self.at += 1
        count = 0
        while True:
            self.skip(_BLANK)
            if self.at >= len(self.text) or self.text[self.at] == close:
                self.at += 1
                return
            if self.text[self.at] == ",":
                self.at += 1
            elif close == "]":
                self.value((*path, count))
                count += 1
            else:
                self.pair(path)


def _unquoted(raw: str) -> str:
    value: Any = tomllib.loads(f"k = {raw}")["k"]
    return str(value)
