"""`interlock new`: write a starter workflow that lints and runs."""

from __future__ import annotations

from pathlib import Path

import click

from interlock.cli.called import spelled
from interlock.cli.options import example, json_option
from interlock.cli.output import say, write_json
from interlock.driver.typed import typed
from interlock.errors import UsageError
from interlock.views.values import SCHEMA

_STARTER = Path(__file__).with_name("starter.md")


@click.command(epilog=example("interlock new", "interlock new workflows/review.md"))
@click.argument("path", type=click.Path(path_type=Path), default=Path("workflow.md"), metavar="[FILE]")
@json_option("Print what was written as JSON.")
def command(path: Path, *, as_json: bool) -> None:
    """Write a starter workflow; an existing file is left alone.

    It shows a command, a map over its output, a gate and a route, and runs as it is.
    """
    if path.is_dir():
        raise UsageError("not-a-file", f"{path} is a folder", "give the workflow a name: interlock new FILE")
    path = path if path.suffix else path.with_suffix(".md")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(_STARTER.read_text(encoding="utf-8"))
    except FileExistsError as error:
        raise UsageError("file-exists", f"{path} exists", "give another name: interlock new FILE") from error
    start = f"{spelled(f'interlock run {typed(path)}')} -p greeting=Hello"
    if as_json:
        write_json({"schema": SCHEMA, "did": "wrote", "path": str(path), "next": [{"command": start, "why": ""}]})
    else:
        say(f"wrote {path}\nnext: {start}")
