"""YAML text -> nodes with places. Nothing is resolved here: a scalar is its text and how it was written.

Guarantees: duplicate keys, merge keys, foreign tags, unknown anchors and a second document are reported; at
most 64 levels and 10,000 nodes repeated by aliases, so no input can blow up; no input raises. Only LF is a
line break (YAML 1.2), whatever the scanner underneath thinks of U+0085, U+2028 and U+2029.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml import events as ev
from ruamel.yaml.error import MarkedYAMLError

from interlock.model.workflow import Place
from interlock.plan.diagnose import Source, did_you_mean, shown

MAX_DEPTH: Final = 64
MAX_REPEATED: Final = 10_000
_TAG: Final = "tag:yaml.org,2002:"
_MOST_TABS: Final = 20
_SMALL: Final = 65_536
_UNREAD: Final = "what else is wrong is told once this is mended"
_UNPRINTABLE_ASCII: Final = re.compile("[^\t\n -~]")
# characters that the scanner takes for line breaks or does not count, against YAML 1.2
_MISREAD: Final = "\x85\u2028\u2029\ufeff"


# what the scanner says, what it means, and what helps
_EXPLAINED: Final = (
    (
        "mapping values are not allowed",
        "a ':' that can't start a value here",
        "quote text that holds ': '; check the indentation",
    ),
    (
        "expected '<document start>'",
        "a line that is neither a key nor part of the value above",
        "write 'key: value', with a blank after the ':'",
    ),
    (
        "expected <block end>",
        "the indentation doesn't fit the lines above",
        "align it with the lines that it belongs to",
    ),
    ("could not find expected ':'", "a line without ':'", "write 'key: value'; quote or indent text of several lines"),
    (
        "expected ',' or ']'",
        "a list that started with '[' goes on or ends here",
        "separate entries by ',' and end the list with ']'",
    ),
    (
        "expected ',' or '}'",
        "a mapping that started with '{' goes on or ends here",
        "separate entries by ',' and end the mapping with '}'",
    ),
    ("unexpected end of stream", "a quoted text that is not closed", "end it with the quote that starts it"),
    ("cannot start any token", "a character that can't start a value", "quote the value"),
)


class Scalar(msgspec.Struct, frozen=True):
    """`plain` scalars may mean a number, a boolean or null; all others are text."""

    place: Place
    text: str
    plain: bool


class Sequence(msgspec.Struct, frozen=True):
    """A list."""

    place: Place
    items: tuple[Node, ...]


class Entry(msgspec.Struct, frozen=True):
    """One `key: value` of a mapping."""

    key: Scalar
    value: Node


class Mapping(msgspec.Struct, frozen=True):
    """Entries in the order written, keys distinct."""

    place: Place
    entries: tuple[Entry, ...]

    def get(self, key: str) -> Node | None:
        """Return the value of `key`."""
        return next((entry.value for entry in self.entries if entry.key.text == key), None)


Node = Scalar | Sequence | Mapping


def compose(text: str, source: Source) -> Node | None:
    """Return the root node of `text`, or None when there is none or the text is not YAML; then it was reported."""
    if _report_unprintable(text, source):
        return None
    if not (misread := _stand_ins(text)):
        source.error(Place(1, 1), "yaml-syntax", "the text uses the whole private use area of Unicode")
        return None
    faults: list[_Fault] = []
    while True:
        composer = _Composer(source, misread)
        fault = composer.run(text.translate({ord(k): v for k, v in misread.items()}))
        if fault is None or (faults and fault.code != "tab"):
            # what is no tab may only follow from one that was taken out
            break
        faults.append(fault)
        if fault.code != "tab" or len(faults) > (_MOST_TABS if len(text) < _SMALL else 1):
            break
        # one space in the tab's place keeps every column, so the faults behind it are found as well
        text = _without_tab(text, fault.place)
    for one in faults:
        last = fault is not None and one is faults[-1]
        source.error(one.place, one.code, one.message, "; ".join(filter(None, (one.hint, _UNREAD if last else ""))))
    return composer.root if fault is None else None


@cache
def _unprintable() -> re.Pattern[str]:
    """Compiled when a text needs it: so wide a set takes longer than most texts."""
    return re.compile("[^\t\n -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _report_unprintable(text: str, source: Source) -> bool:
    found = False
    unprintable = _UNPRINTABLE_ASCII if text.isascii() else _unprintable()
    for number, line in enumerate(text.split("\n"), 1):
        for match in unprintable.finditer(line):
            found = True
            message = f"the character U+{ord(match.group()):04X} may not stand in YAML"
            source.error(
                Place(number, match.start() + 1), "control-character", message, "write it as an escape in double quotes"
            )
    return found


def _stand_ins(text: str) -> dict[str, str]:
    """Return a private character, unused in `text`, for each misread one."""
    if not any(character in text for character in _MISREAD):
        return {character: character for character in _MISREAD}
    unused = (chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in text)
    found = dict(zip(_MISREAD, unused, strict=False))
    return found if len(found) == len(_MISREAD) else {}


def _without_tab(text: str, place: Place) -> str:
    lines = text.split("\n")
    line = lines[place.line - 1]
    lines[place.line - 1] = f"{line[: place.column - 1]} {line[place.column :]}"
    return "\n".join(lines)


class _Fault(Exception):  # noqa: N818 - it carries a finding to the one place that reports it, and is no error of ours
    def __init__(self, place: Place, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.place, self.code, self.message, self.hint = place, code, message, hint


class _Composer:
    """Events -> nodes, once."""

    def __init__(self, source: Source, misread: dict[str, str]) -> None:
        self.root: Node | None = None
        self._source = source
        self._restore = {ord(stand_in): character for character, stand_in in misread.items()}
        self._events: Iterator[Any] = iter(())
        self._last = Place(1, 1)
        self._anchors: dict[str, tuple[Node, int, int]] = {}
        self._open: set[str] = set()
        self._count = 0
        self._repeated = 0

    def run(self, text: str) -> _Fault | None:
        """Compose the one document of `text`."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._events = iter(YAML(typ="safe", pure=True).parse(text))
                self._document()
        except _Fault as fault:
            return fault
        except MarkedYAMLError as error:
            return self._syntax(error, text)
        except Exception:  # noqa: BLE001 - the scanner has more ways to fail than it declares (chr of a huge escape)
            return _Fault(self._last, "yaml-syntax", "not YAML: what follows here can't be read")
        return None

    def _document(self) -> None:
        next(self._events)
        event = next(self._events)
        if isinstance(event, ev.StreamEndEvent):
            return
        self.root, _ = self._node(next(self._events), 1)
        next(self._events)
        event = next(self._events)
        if not isinstance(event, ev.StreamEndEvent):
            hint = "keep one document; the body starts after the closing '---'"
            raise _Fault(self._place(event), "several-documents", "a second YAML document", hint)

    def _syntax(self, error: MarkedYAMLError, text: str) -> _Fault:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else self._last
        line = [*text.split("\n"), ""][place.line - 1]
        if line[place.column - 1 : place.column] == "\t":
            return _Fault(place, "tab", "a tab where YAML takes only spaces", "replace it by spaces")
        problem, context = str(error.problem or error), str(error.context or "")
        if error.context_mark and "unexpected end of stream" in problem:
            place = Place(error.context_mark.line + 1, error.context_mark.column + 1)
        for known, message, hint in _EXPLAINED:
            if known in problem:
                return _Fault(place, "yaml-syntax", message, hint)
        return _Fault(place, "yaml-syntax", f"not YAML: {shown(f'{problem} {context}'.strip(), 160)}")

    def _node(self, event: Any, depth: int) -> tuple[Node, int]:  # noqa: ANN401 - the library's events are untyped
        """Return the node that `event` starts, and its height."""
        self._last = place = self._place(event)
        if isinstance(event, ev.AliasEvent):
            return self._alias(event.anchor, place, depth)
        if depth > MAX_DEPTH:
            raise _Fault(place, "too-deep", f"more than {MAX_DEPTH} levels of nesting")
        anchor, before = event.anchor, self._count
        self._count += 1
        if anchor:
            self._open.add(anchor)
        node, height = self._content(event, place, depth)
        if anchor:
            self._open.discard(anchor)
            self._anchors[anchor] = (node, self._count - before, height)
        return node, height

    def _content(self, event: Any, place: Place, depth: int) -> tuple[Node, int]:  # noqa: ANN401 - as above
        if isinstance(event, ev.ScalarEvent):
            return self._scalar(event, place), 1
        if isinstance(event, ev.SequenceStartEvent):
            self._check_tag(event, place, "seq")
            return self._sequence(place, depth)
        self._check_tag(event, place, "map")
        return self._mapping(place, depth)

    def _sequence(self, place: Place, depth: int) -> tuple[Node, int]:
        items: list[Node] = []
        height = 0
        while not isinstance(event := next(self._events), ev.SequenceEndEvent):
            node, tall = self._node(event, depth + 1)
            items.append(node)
            height = max(height, tall)
        return Sequence(place, tuple(items)), height + 1

    def _mapping(self, place: Place, depth: int) -> tuple[Node, int]:
        entries: dict[str, Entry] = {}
        height = 0
        while not isinstance(event := next(self._events), ev.MappingEndEvent):
            key, _ = self._node(event, depth + 1)
            value, tall = self._node(next(self._events), depth + 1)
            height = max(height, tall)
            if isinstance(key, Scalar) and self._key_fits(key, entries):
                entries[key.text] = Entry(key, value)
            elif not isinstance(key, Scalar):
                self._source.error(key.place, "bad-key", "a key must be text, not a list or a mapping")
        return Mapping(place, tuple(entries.values())), height + 1

    def _key_fits(self, key: Scalar, entries: dict[str, Entry]) -> bool:
        if key.plain and key.text == "<<":
            self._source.error(
                key.place, "merge-key", "merge keys ('<<') are not part of YAML 1.2", "write the keys out"
            )
            return False
        if key.text in entries:
            first = entries[key.text].key.place
            message = f"duplicate key '{shown(key.text)}'"
            self._source.error(key.place, "duplicate-key", message, f"it already stands on line {first.line}")
            return False
        return True

    def _alias(self, anchor: str, place: Place, depth: int) -> tuple[Node, int]:
        if anchor in self._open:
            raise _Fault(place, "recursive-alias", f"the alias '*{shown(anchor)}' stands inside of itself")
        if anchor not in self._anchors:
            hint = did_you_mean(anchor, self._anchors)
            raise _Fault(place, "unknown-alias", f"no anchor '&{shown(anchor)}' stands before this alias", hint)
        node, weight, height = self._anchors[anchor]
        self._repeated += weight
        self._count += weight
        if self._repeated > MAX_REPEATED:
            message = f"aliases repeat more than {MAX_REPEATED} nodes"
            raise _Fault(place, "too-many-aliases", message, "write the parts out, or pass them as a file")
        if depth + height - 1 > MAX_DEPTH:
            raise _Fault(place, "too-deep", f"more than {MAX_DEPTH} levels of nesting")
        return node, height

    def _scalar(self, event: Any, place: Place) -> Scalar:  # noqa: ANN401 - as above
        text = event.value.translate(self._restore)
        plain = event.style is None or event.style == ""
        tag = str(event.tag) if event.tag else ""
        if tag in {"!", f"{_TAG}str"}:
            plain = False
        elif tag in {f"{_TAG}int", f"{_TAG}float", f"{_TAG}bool", f"{_TAG}null"}:
            plain = True
        elif tag:
            self._foreign_tag(tag, place)
        return Scalar(place, self._joined(text, place), plain)

    def _joined(self, text: str, place: Place) -> str:
        r"""Return `text` with escaped surrogate pairs (`"\ud83d\ude00"`, as JSON has them) joined."""
        if text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text):
            return text
        halves = text.encode("utf-16-le", "surrogatepass")
        try:
            return halves.decode("utf-16-le")
        except UnicodeDecodeError:
            self._source.error(place, "lone-surrogate", "a lone surrogate is not text")
            return halves.decode("utf-16-le", "replace")

    def _check_tag(self, event: Any, place: Place, kind: str) -> None:  # noqa: ANN401 - as above
        tag = str(event.tag) if event.tag else ""
        if tag not in {"", "!", _TAG + kind}:
            self._foreign_tag(tag, place)

    def _foreign_tag(self, tag: str, place: Place) -> None:
        written = shown(tag.replace(_TAG, "!!"))
        self._source.error(place, "unknown-tag", f"the tag '{written}' is not used here", "remove it")

    def _place(self, event: Any) -> Place:  # noqa: ANN401 - as above
        start, end = event.start_mark, event.end_mark
        if not isinstance(event, ev.ScalarEvent | ev.AliasEvent):
            return Place(start.line + 1, start.column + 1)
        if end.line == start.line:
            return Place(start.line + 1, start.column + 1, max(1, end.column - start.column))
        lines = self._source.lines
        rest = len(lines[start.line].rstrip()) - start.column if start.line < len(lines) else 1
        return Place(start.line + 1, start.column + 1, max(1, rest))
