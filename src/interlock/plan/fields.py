"""Typed reading of YAML nodes: each reader returns the value, or UNSET after reporting what is wrong.

Guarantee: a wrong type, an unknown key or a value out of bounds is reported at its place with what was
expected and what was found; where text is wanted the source text of any scalar is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from msgspec import UNSET, UnsetType

from interlock.model.workflow import Place
from interlock.plan.diagnose import Source, is_one_slip, nearest, shown, suggest
from interlock.plan.durations import FORMS, DurationError, parse_duration
from interlock.plan.scalars import NumberError, describe, resolve
from interlock.plan.yaml import Entry, Mapping, Node, Scalar
from interlock.plan.yaml import Sequence as ListNode

T = TypeVar("T")
_LARGEST: Final = 2**53


class Fields:
    """One mapping whose keys must be among `known`; the rest is reported at once.

    A reported key stands for the known one that it nearly is, so that nothing is said to be missing which is only
    misspelled. What it holds is read as that key's where one slip of the hand explains it, else not at all.
    """

    def __init__(self, source: Source, node: Mapping, what: str, known: Sequence[str]) -> None:
        self.source = source
        self.what = what
        self.place = node.place
        self.has_unknown = False
        self.misspelled: dict[str, Place] = {}
        """Where the known keys stand that are not spelled like that."""
        self._entries = {entry.key.text: entry for entry in node.entries if entry.key.text in known}
        for entry in node.entries:
            if entry.key.text not in known:
                self._unknown(entry, known)

    def _unknown(self, entry: Entry, known: Sequence[str]) -> None:
        name, place = entry.key.text, entry.key.place
        message = f"unknown key '{shown(name)}' in {self.what}"
        self.source.error(place, "unknown-key", message, suggest(name, known))
        self.has_unknown = True
        meant = nearest(name, known)
        if not meant or meant in self:
            return
        self.misspelled[meant] = place
        if is_one_slip(name, meant):
            self._entries[meant] = entry
            self.source.mended += 1

    def __contains__(self, key: str) -> bool:
        return key in self._entries or key in self.misspelled

    def keys(self) -> set[str]:
        """Return the known keys that stand there, the misspelled ones too."""
        return {*self._entries, *self.misspelled}

    def node(self, key: str) -> Node | None:
        """Return the value of `key` as written."""
        entry = self._entries.get(key)
        return entry.value if entry else None

    def place_of(self, key: str) -> Place:
        """Return where `key` stands, else where the mapping starts."""
        entry = self._entries.get(key)
        return entry.key.place if entry else self.misspelled.get(key, self.place)

    def read(self, key: str, reader: Callable[[Source, Node, str], T | UnsetType]) -> T | UnsetType:
        """Return what `reader` makes of the value of `key`, UNSET when it is not there."""
        entry = self._entries.get(key)
        return UNSET if entry is None else reader(self.source, entry.value, f"'{key}'")

    def require(self, *keys: str) -> bool:
        """Report each of `keys` that is missing."""
        missing = [key for key in keys if key not in self]
        for key in missing:
            self.source.error(self.place, "missing-key", f"{self.what} needs '{key}'")
        return not missing


def wrong(source: Source, node: Node, what: str, wanted: str, hint: str = "") -> UnsetType:
    """Report that `node` is not what was wanted."""
    source.error(node.place, "wrong-type", f"{what} must be {wanted}, not {describe(node)}", hint)
    return UNSET


def text(source: Source, node: Node, what: str) -> str | UnsetType:
    """Read text: the source text of any scalar but an empty one."""
    if not isinstance(node, Scalar) or not node.text:
        return wrong(source, node, what, "text")
    if "\0" in node.text:
        source.error(
            node.place, "nul-character", f"{what} holds a NUL character", "no command or file name can hold one"
        )
        return UNSET
    return node.text


def choice(options: Sequence[str]) -> Callable[[Source, Node, str], str | UnsetType]:
    """Make a reader of one of `options`."""

    def read(source: Source, node: Node, what: str) -> str | UnsetType:
        if isinstance(node, Scalar) and node.text in options:
            return node.text
        word = node.text if isinstance(node, Scalar) else ""
        wanted = "one of " + ", ".join(options) if len(options) > 1 else f"'{options[0]}'"
        return wrong(source, node, what, wanted, suggest(word, options) if word else "")

    return read


def integer(low: int, high: int | None = None) -> Callable[[Source, Node, str], int | UnsetType]:
    """Make a reader of a whole number within bounds."""
    top = _LARGEST if high is None else high
    wanted = f"a whole number from {low} to {high}" if high is not None else f"a whole number of at least {low}"

    def read(source: Source, node: Node, what: str) -> int | UnsetType:
        value = _resolved(node)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            return wrong(source, node, what, wanted)
        if value > top:
            return wrong(source, node, what, wanted if high is not None else f"{wanted} and at most {top}")
        return value

    return read


def number(
    low: float, high: float | None = None, *, above: bool = False
) -> Callable[[Source, Node, str], float | UnsetType]:
    """Make a reader of a finite number within bounds, or strictly above the lower one."""
    top = _LARGEST if high is None else high
    wanted = f"a number {'above' if above else 'of at least'} {low:g}"
    if high is not None:
        wanted = f"a number from {low:g} to {high:g}"

    def read(source: Source, node: Node, what: str) -> float | UnsetType:
        value = _resolved(node)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return wrong(source, node, what, wanted)
        # not a number fits no comparison
        if not value >= low or (above and value == low):
            return wrong(source, node, what, wanted)
        if value > top:
            return wrong(source, node, what, wanted if high is not None else f"{wanted} and at most {top}")
        return float(value)

    return read


def boolean(source: Source, node: Node, what: str) -> bool | UnsetType:
    """Read true or false."""
    value = _resolved(node)
    if isinstance(value, bool):
        return value
    looks = isinstance(node, Scalar) and node.text.casefold() in {"yes", "no", "on", "off", "true", "false"}
    return wrong(source, node, what, "true or false", "write true or false, unquoted" if looks else "")


def duration(source: Source, node: Node, what: str) -> int | UnsetType | None:
    """Read a duration in milliseconds; `none` is None."""
    if not isinstance(node, Scalar) or not node.text:
        return wrong(source, node, what, "a duration", FORMS)
    try:
        return parse_duration(node.text)
    except DurationError as error:
        source.error(node.place, "bad-duration", f"{what}: '{shown(node.text)}' {error}", FORMS)
        return UNSET


def texts(source: Source, node: Node, what: str) -> tuple[str, ...] | UnsetType:
    """Read a list of texts."""
    return _each(source, node, what, text)


def argv(source: Source, node: Node, what: str) -> tuple[str, ...] | UnsetType:
    """Read a program and its arguments, which may be empty texts."""
    read = _each(source, node, what, _argument)
    if read is UNSET or not isinstance(node, ListNode):
        return UNSET
    if not read:
        return wrong(source, node, what, "a command", "an empty list runs nothing")
    if not read[0].strip():
        return wrong(source, node.items[0], f"the program of {what}", "a name or path")
    return read


def _argument(source: Source, node: Node, what: str) -> str | UnsetType:
    return "" if isinstance(node, Scalar) and not node.text and not node.plain else text(source, node, what)


def _each(
    source: Source, node: Node, what: str, reader: Callable[[Source, Node, str], str | UnsetType]
) -> tuple[str, ...] | UnsetType:
    if not isinstance(node, ListNode):
        hint = "write it as a list: [" + shown(node.text) + "]" if isinstance(node, Scalar) and node.text else ""
        return wrong(source, node, what, "a list", hint)
    read = [reader(source, item, f"an entry of {what}") for item in node.items]
    return UNSET if UNSET in read else tuple(entry for entry in read if entry is not UNSET)


def names(source: Source, node: Node, what: str) -> tuple[str, ...] | UnsetType:
    """Read a list of distinct texts."""
    read = texts(source, node, what)
    if read is UNSET or not isinstance(node, ListNode):
        return UNSET
    for index, name in enumerate(read):
        if name in read[:index]:
            source.error(node.items[index].place, "duplicate-entry", f"'{shown(name)}' stands twice in {what}")
    return read


def joined(words: Sequence[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


_MAPPINGS: Final = {
    "'map'": "write { over: params.<name> } or { over: steps.<id>.output }",
    "'retry'": "write { max: 2 }",
    "'gate'": "write { check: command } or { approval: true }",
    "'route'": "write { input: steps.<id>.output, when: [{ match: text, step: id }] }",
    "'budget'": "write { max_units: 100 }",
    "'params'": "write { <name>: { type: string, default: ... } }",
}
"""What is meant where something shorter was written."""


def mapping(source: Source, node: Node, what: str) -> Mapping | UnsetType:
    """Read a mapping."""
    if isinstance(node, Mapping):
        return node
    return wrong(source, node, what, "a mapping", _MAPPINGS.get(what, ""))


def sequence(source: Source, node: Node, what: str) -> ListNode | UnsetType:
    """Read a list."""
    return node if isinstance(node, ListNode) else wrong(source, node, what, "a list")


def _resolved(node: Node) -> object:
    if not isinstance(node, Scalar):
        return node
    try:
        return resolve(node)
    except NumberError:
        return node
