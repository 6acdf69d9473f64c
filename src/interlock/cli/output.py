"""Writing to standard output: lines for people, JSON for programs.

JSON of an object or list is indented; NDJSON is one compact value a line. Lists stream: a hundred thousand
units never stand in memory together.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click
import msgspec

from interlock.cli.text import clip

_ANY_WIDTH: Final = 10_000


def say(text: str = "") -> None:
    """Write a line; colours are left out where nobody would see them."""
    click.echo(text)


def note(text: str) -> None:
    """Write a line to standard error."""
    click.echo(text, err=True)


def style(text: str, **how: Any) -> str:  # noqa: ANN401 - click's own options
    """Colour text unless the reader asked for none."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else click.style(text, **how)


def write_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Write one JSON value, indented."""
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def write_json_line(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Write one JSON value on one line, at once."""
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def write_json_list(values: Iterable[Any]) -> None:
    """Write a JSON list, one entry a line, as it comes."""
    out = sys.stdout.buffer
    between = b"[\n"
    for value in values:
        out.write(between + msgspec.json.encode(value))
        between = b",\n"
    out.write(b"[]\n" if between == b"[\n" else b"\n]\n")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], widths: Sequence[int]) -> None:
    """Write rows under headings as they come; the last column takes what a terminal's line has left."""
    import shutil  # noqa: PLC0415 - only what fits a terminal needs it

    most = shutil.get_terminal_size().columns if sys.stdout.isatty() else _ANY_WIDTH
    say(style(clip(_row(head, widths), most), bold=True))
    for row in rows:
        say(clip(_row(row, widths), most))


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    fixed = [clip(cell, width).ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return "  ".join([*fixed, *cells[len(widths) :]]).rstrip()


def discard_output() -> None:
    """Point standard output at nothing, so that what is still buffered for a reader who left raises no more."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
