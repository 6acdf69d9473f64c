"""The small language in which a row of the table says where things stand in an agent's JSON.

    [sum|join|first] [CONDITION ...] -> PATH         without `->` the whole rule is a PATH

A CONDITION is `path=value`, `path!=value` or `path` (there, and not empty); an event must meet all of them. A PATH is
names and indices joined by dots, `*` for each entry of a list. Without a word before it the last event that has the
path counts, and several values of it are joined. Guarantee: nothing here raises for any events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, cast

import msgspec

Mode = Literal["last", "first", "sum", "join"]
_MODES: Final = frozenset({"first", "sum", "join"})
_CONDITION: Final = re.compile(r"([^=!\s]+)(?:(!?=)(\S*))?")


class Condition(msgspec.Struct, frozen=True):
    """What an event must have at `path`; without `sign`, anything."""

    path: tuple[str, ...]
    sign: str
    value: str

    def met(self, event: Any) -> bool:  # noqa: ANN401 - any JSON value
        """Tell whether the event meets it."""
        found = list(_at(event, self.path))
        if not self.sign:
            return any(found)
        return any(_shown(value) == self.value for value in found) is (self.sign == "=")


class Rule(msgspec.Struct, frozen=True):
    """A rule, parsed."""

    mode: Mode
    conditions: tuple[Condition, ...]
    path: tuple[str, ...]

    def meets(self, event: Any) -> bool:  # noqa: ANN401 - any JSON value
        """Tell whether the event meets all conditions."""
        return all(condition.met(event) for condition in self.conditions)

    def values(self, events: Sequence[Any]) -> list[Any]:
        """Return everything that the rule names, in order."""
        return [value for found in self._by_event(events) for value in found]

    def text(self, events: Sequence[Any]) -> str | None:
        """Return the text it names; None if there is none."""
        found = [texts for values in self._by_event(events) if (texts := [v for v in values if isinstance(v, str)])]
        if not found:
            return None
        chosen = found if self.mode == "join" else found[:1] if self.mode == "first" else found[-1:]
        return "".join(text for texts in chosen for text in texts)

    def number(self, events: Sequence[Any]) -> float | None:
        """Return the number it names; None if there is none."""
        found = [v for v in self.values(events) if isinstance(v, int | float) and not isinstance(v, bool) and v >= 0]
        if not found:
            return None
        return sum(found) if self.mode == "sum" else found[0] if self.mode == "first" else found[-1]

    def _by_event(self, events: Sequence[Any]) -> Iterator[list[Any]]:
        return (list(_at(event, self.path)) for event in events if self.meets(event))


def parse(text: str) -> Rule:
    """Return the rule. Raises ValueError for one that cannot be read."""
    before, arrow, path = text.partition("->")
    words = before.split() if arrow else []
    if not arrow:
        path = before
    mode = words.pop(0) if words and words[0] in _MODES else "last"
    if not path.strip() or len(path.split()) != 1:
        raise ValueError(f"`{text}` names no path; write `type=result -> data.text`")
    return Rule(cast("Mode", mode), tuple(_condition(word) for word in words), tuple(path.strip().split(".")))


def parse_conditions(text: str) -> Rule:
    """Return a rule of conditions alone."""
    return Rule("last", tuple(_condition(word) for word in text.split()), ())


def _condition(word: str) -> Condition:
    found = _CONDITION.fullmatch(word)
    if found is None:
        raise ValueError(f"`{word}` is no condition; write `type=result`, `type!=result` or `type`")
    return Condition(tuple(found[1].split(".")), found[2] or "", found[3] or "")


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _at(value: Any, path: tuple[str, ...]) -> Iterator[Any]:  # noqa: ANN401 - any JSON value
    if not path:
        if value is not None:
            yield value
        return
    key, rest = path[0], path[1:]
    if isinstance(value, dict):
        yield from _at(value.get(key), rest)
    elif isinstance(value, list):
        if key == "*":
            for entry in value:
                yield from _at(entry, rest)
        elif re.fullmatch(r"-?\d+", key) and -len(value) <= int(key) < len(value):
            yield from _at(value[int(key)], rest)
