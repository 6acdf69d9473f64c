"""Agents that are described, not programmed: `table.toml` holds a row for each, this file says what a row may hold.

Guarantee: a row is checked whole when it is read; one that cannot work is a ValueError that names row and field.
"""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from interlock.dispatch.agents.base import Answer, Ask, Card, Feature, Launch, Reply
from interlock.dispatch.agents.rules import Rule, parse, parse_conditions
from interlock.dispatch.agents.table_launch import NAMES, launch
from interlock.dispatch.agents.table_read import Reading, read

_TABLE: Final = Path(__file__).with_name("table.toml")
_PLACEHOLDER: Final = re.compile(r"\{(\w+)[?!]?\}")


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One agent. `table.toml` explains the fields."""

    program: str
    version: tuple[str, ...] = ("--version",)
    argv: tuple[str | tuple[str, ...], ...] = ()
    unless: dict[str, tuple[str, ...]] = {}
    last: tuple[str, ...] = ()
    prompt: Literal["stdin", "argv", "file"] = "stdin"
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    output: Literal["text", "json", "jsonl"] = "text"
    text: str = ""
    session: str = ""
    named_session: bool = False
    model: str = ""
    request_id: str = ""
    error: str = ""
    status: str = ""
    finish: str = ""
    finish_ok: tuple[str, ...] = ()
    terminal: str = ""
    cut: tuple[str, ...] = ()
    denied: str = ""
    tool_id: str = ""
    tool_name: str = ""
    input_tokens: tuple[str, ...] = ()
    output_tokens: tuple[str, ...] = ()
    cached_tokens: tuple[str, ...] = ()
    reasoning_tokens: tuple[str, ...] = ()
    cost_usd: tuple[str, ...] = ()
    session_gone: str = ""
    failed_text: str = ""
    cannot: tuple[Feature, ...] = ()
    notices: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()

    def templates(self) -> list[str]:
        """Return everything that may hold a placeholder."""
        arguments = [text for entry in self.argv for text in ([entry] if isinstance(entry, str) else entry)]
        return [*arguments, *self.last, *self.env.values(), *self.files.values(), *self.notices]


class TableAdapter:
    """An adapter made from a row."""

    def __init__(self, row: Row) -> None:
        _check(row)
        self._row = row
        self._reading = _reading(row)
        self._terminal = parse_conditions(row.terminal) if row.terminal else None
        self.card: Final = Card(
            program=row.program, version=row.version, cannot=frozenset(row.cannot), caveats=row.caveats
        )

    def launch(self, ask: Ask) -> Launch:
        """Say how to start it. Raises CannotAskError."""
        return launch(self._row, self.card, ask)

    def read(self, reply: Reply) -> Answer:
        """Say what came of it."""
        return read(self._reading, reply)

    def is_terminal(self, line: bytes) -> bool:
        """Tell whether a line of stdout is the last event."""
        if self._terminal is None or not line.lstrip().startswith(b"{"):
            return False
        try:
            return self._terminal.meets(msgspec.json.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False


def row_of(values: dict[str, Any], name: str) -> Row:
    """Return a row from its TOML table. Raises ValueError."""
    try:
        return msgspec.convert(values, Row)
    except msgspec.ValidationError as error:
        raise ValueError(f"agent `{name}` in the table: {error}") from error


@functools.cache
def rows() -> dict[str, Row]:
    """Return all rows by agent. Raises ValueError."""
    return {name: row_of(values, name) for name, values in tomllib.loads(_TABLE.read_text("utf-8")).items()}


@functools.cache
def table_adapter(agent: str) -> TableAdapter:
    """Return the adapter of the row. Raises KeyError for an agent without one."""
    return TableAdapter(rows()[agent])


def _reading(row: Row) -> Reading:
    def rule(text: str) -> Rule | None:
        return parse(text) if text else None

    def each(texts: tuple[str, ...]) -> tuple[Rule, ...]:
        return tuple(parse(text) for text in texts)

    return Reading(
        output=row.output,
        text=rule(row.text),
        session=rule(row.session),
        named_session=row.named_session,
        model=rule(row.model),
        request_id=rule(row.request_id),
        error=rule(row.error),
        status=rule(row.status),
        finish=rule(row.finish),
        finish_ok=frozenset(row.finish_ok),
        terminal=parse_conditions(row.terminal) if row.terminal else None,
        cut=each(row.cut),
        denied=rule(row.denied),
        tool_id=rule(row.tool_id),
        tool_name=rule(row.tool_name),
        counts=tuple(
            (name, each(getattr(row, name)))
            for name in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
        ),
        cost_usd=each(row.cost_usd),
        session_gone=re.compile(row.session_gone) if row.session_gone else None,
        failed_text=re.compile(row.failed_text, re.MULTILINE) if row.failed_text else None,
    )


def _check(row: Row) -> None:
    """Raise ValueError for what would only show when the agent runs."""
    for template in row.templates():
        for name in _PLACEHOLDER.findall(template):
            if name not in NAMES:
                raise ValueError(f"agent `{row.program}`: `{{{name}}}` is nothing that can be put in")
    arguments = [text for entry in row.argv for text in ([entry] if isinstance(entry, str) else entry)]
    if any("{api_key}" in text for text in (*arguments, *row.last, *row.notices)):
        raise ValueError(f"agent `{row.program}`: `{{api_key}}` in argv would show the key to everybody; use `env`")
    if row.output != "text" and not row.text:
        raise ValueError(f"agent `{row.program}`: `text` must say where the answer stands in its {row.output}")
    if row.cut and len(row.cut) != 2:  # noqa: PLR2004 - a pair, as the table explains
        raise ValueError(f"agent `{row.program}`: `cut` takes two rules")
