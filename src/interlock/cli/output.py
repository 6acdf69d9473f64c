"""Writing to standard output: lines for people, JSON for programs.

JSON of an object or list is indented; NDJSON is one compact value a line. Lists stream: a hundred thousand
units never stand in memory together.

Guarantee: what becomes of the output never ends a command whose exit code means something. Only `LISTINGS`, which
may be long or without end, stop when nobody takes what they write.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, Final

import click
import msgspec

from interlock.cli.called import spelled
from interlock.cli.text import clip

LISTINGS: Final = frozenset({"events", "list", "logs", "units"})
"""Commands that only show something, and whose reader may have seen enough."""
_ANY_WIDTH: Final = 10_000
_lost: list[OSError] = []
_raising: list[bool] = []


def say(text: str = "") -> None:
    """Write a line; colours are left out where nobody would see them."""
    with _whatever_becomes_of_it():
        click.echo(text)


def note(text: str) -> None:
    """Write a line to standard error; a closed one is nothing to fail about."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(spelled(text), err=True)


def style(text: str, **how: Any) -> str:  # noqa: ANN401 - click's own options
    """Colour text unless the reader asked for none."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else click.style(text, **how)


def write_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Write one JSON value, indented."""
    with _whatever_becomes_of_it():
        sys.stdout.buffer.write(msgspec.json.format(_encoded(value), indent=2) + b"\n")


def write_json_line(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Write one JSON value on one line, at once."""
    with _whatever_becomes_of_it():
        sys.stdout.buffer.write(_encoded(value) + b"\n")
        sys.stdout.buffer.flush()


def write_json_list(values: Iterable[Any]) -> None:
    """Write a JSON list, one entry a line, as it comes."""
    out = sys.stdout.buffer
    between = b"[\n"
    for value in values:
        with _whatever_becomes_of_it():
            out.write(between + _encoded(value))
        between = b",\n"
    with _whatever_becomes_of_it():
        out.write(b"[]\n" if between == b"[\n" else b"\n]\n")


def _encoded(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_readable(msgspec.to_builtins(value)))


def _readable(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Replace what JSON can't hold: a file's name may be made of any bytes."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_readable(key): _readable(entry) for key, entry in value.items()}
    return [_readable(entry) for entry in value] if isinstance(value, list | tuple) else value


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


@contextlib.contextmanager
def _whatever_becomes_of_it() -> Iterator[None]:
    """Go on without a reader, but where the command is there for the reader alone."""
    try:
        yield
    except OSError as error:
        if _raising:
            raise
        context = click.get_current_context(silent=True)
        if context is not None and context.find_root().invoked_subcommand in LISTINGS:
            error.filename = error.filename or "standard output"
            raise
        lose_output(error)


@contextlib.contextmanager
def raising_output() -> Iterator[None]:
    """Let what becomes of the output be known inside: for who has something else to say of it."""
    _raising.append(True)
    try:
        yield
    finally:
        _raising.pop()


def lose_output(error: OSError) -> None:
    """Go on without output; `lost_output` tells the first reason, but of a reader who left there is nothing to tell."""
    discard_output()
    if not isinstance(error, BrokenPipeError):
        _lost.append(error)


def lost_output() -> OSError | None:
    """Return why output could not be written, once; None if it could, or if its reader left."""
    error = _lost[0] if _lost else None
    _lost.clear()
    return error


def discard_output() -> None:
    """Point standard output at nothing, so that what is still buffered for a reader who left raises no more."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def is_stalled(stream: IO[str]) -> bool:
    """Tell whether a write there would have to wait for its reader."""
    import select  # noqa: PLC0415 - only who is asked to stop asks

    with contextlib.suppress(OSError, ValueError):
        return not select.select((), (stream,), (), 0)[1]
    return False
