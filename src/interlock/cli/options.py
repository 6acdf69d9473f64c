"""Arguments, options and value types that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from interlock.cli.session import Session
from interlock.errors import InterlockError
from interlock.plan.durations import DurationError, parse_duration

_Command = TypeVar("_Command", bound=Callable[..., Any])


def example(*lines: str) -> str:
    """The epilog that shows how a command is used."""
    head = "Example" if len(lines) == 1 else "Examples"
    return f"\b\n{head}:\n" + "\n".join(f"  {line}" for line in lines)


class RunId(click.ParamType[str]):
    """A run's id, its beginning, or `last`; completes to the newest runs of the project."""

    name = "run"

    def shell_complete(
        self, ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Offer ids that begin so."""
        session = ctx.find_object(Session)
        if session is None:
            return []
        session.project = ctx.find_root().params.get("project")
        try:
            runs = session.app.store.runs(limit=50)
        except InterlockError:
            return []
        item = click.shell_completion.CompletionItem
        return [item(run.id, help=f"{run.workflow} {run.state}") for run in runs if run.id.startswith(incomplete)]


class RunOrFile(RunId):
    """A workflow file or a run; completes to both."""

    name = "target"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Offer the shell's own files and the runs' ids."""
        files = click.shell_completion.CompletionItem(incomplete, type="file")
        return [files, *super().shell_complete(ctx, param, incomplete)]


class Text(click.ParamType[str]):
    """Text that can be journaled: bytes that are no UTF-8 are refused."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401 - click's signature
        """Check the text."""
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"'{text}' is not UTF-8", param, ctx)
        return text


class Duration(click.ParamType[int]):
    """`500ms`, `90s`, `10m`, `2h`, `30d`; a bare integer is milliseconds. Gives milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401 - click's signature
        """Read the text."""
        if isinstance(value, int):
            return value
        text = str(value).strip()
        try:
            # days are for people; the workflow language has none
            found = parse_duration(f"{int(text[:-1]) * 24}h" if re.fullmatch(r"[0-9]{1,6}d", text) else text)
        except DurationError:
            found = None
        if found is None:
            self.fail(f"'{value}' is no duration; write 500ms, 90s, 10m, 2h or 30d", param, ctx)
        return found


class Money(click.ParamType[float]):
    """`5usd` or `$5`. Gives US dollars."""

    name = "money"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401 - click's signature
        """Read the text."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"\$(?P<a>[0-9]+(\.[0-9]+)?)|(?P<b>[0-9]+(\.[0-9]+)?) ?usd", str(value).strip().lower())
        if found is None:
            self.fail(f"'{value}' is no sum of money; write 5usd or 0.50usd", param, ctx)
        return float(found["a"] or found["b"])


class Assignment(click.ParamType[tuple[str, str]]):
    """`name=value`. Gives both."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:  # noqa: ANN401 - click's signature
        """Split at the first equals sign."""
        if isinstance(value, tuple):
            return value
        name, sign, given = str(value).partition("=")
        if not sign or not name:
            self.fail(f"'{value}' is not of the form name=value", param, ctx)
        return name, given


def run_argument(*, default: str | None = None) -> Callable[[_Command], _Command]:
    """The run that a command is about."""
    if default is None:
        # to click even a default of None is one, and the argument would not be required
        return click.argument("run", type=RunId(), metavar="RUN")
    return click.argument("run", type=RunId(), metavar="[RUN]", default=default)


def note_option(what: str) -> Callable[[_Command], _Command]:
    """`--note`, journaled with a person's verdict."""
    return click.option("-m", "--note", type=Text(), default="", metavar="TEXT", help=what)


def json_option(what: str = "Print JSON.") -> Callable[[_Command], _Command]:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help=what)


def _read_from(ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
    session = ctx.find_object(Session)
    if session is not None:
        session.source = value


def from_option(command: _Command) -> _Command:
    """`--from FILE`, for commands that only read: what they say of a run comes out of an export."""
    return click.option(
        "--from",
        type=click.Path(path_type=Path),
        metavar="FILE",
        callback=_read_from,
        expose_value=False,
        help="Read this export instead of the project's journal; `last` is the run that was exported.",
    )(command)


def params_options(command: _Command) -> _Command:
    """`-p name=value` and `--params-file FILE`."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    command = click.option(
        "--params-file", type=file, metavar="FILE", help="Parameters from a JSON or YAML mapping; -p wins over it."
    )(command)
    return click.option(
        "-p",
        "--param",
        "params",
        type=Assignment(),
        multiple=True,
        metavar="NAME=VALUE",
        help="A parameter, typed by the workflow's schema; repeat it for lists.",
    )(command)
