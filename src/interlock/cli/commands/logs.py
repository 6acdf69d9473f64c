"""`interlock logs`: what a run's commands and functions wrote."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from interlock.cli.following import Follower
from interlock.cli.log_lines import Said, said
from interlock.cli.log_units import Attempts
from interlock.cli.options import example, from_option, json_option, run_argument
from interlock.cli.output import say, style, write_json_line
from interlock.cli.session import Session
from interlock.cli.text import safe
from interlock.dispatch.logs.reading import Frame, read_log
from interlock.errors import UsageError
from interlock.views.values import SCHEMA, rfc3339


@click.command(
    epilog=example(
        "interlock logs last",
        "interlock logs last review:0a1b2c3d4e5f6789 --stream err",
        "interlock logs last --follow",
    )
)
@run_argument()
@click.argument("unit", required=False, metavar="[UNIT|STEP]")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@click.option("--stream", type=click.Choice(["out", "err"]), help="Only standard output or standard error.")
@click.option("--raw", is_flag=True, help="Bytes as they were written, control characters and all.")
@from_option
@json_option("Print NDJSON: `{schema, at, unit, attempt, stream, text}` a line.")
@click.pass_obj
def command(session: Session, /, run: str, unit: str | None, **options: Any) -> None:  # noqa: ANN401 - one value per option
    """Show what a run's commands and functions wrote, of all units, one step's, or one UNIT's.

    Control characters are shown escaped unless --raw is given.
    """
    session.refuse_following(follow=options["follow"])
    run_id = session.find(run)
    app = session.app
    attempts = Attempts(app.store, run_id)
    if unit is not None and not attempts.covers(unit):
        raise UsageError("unknown-unit", f"the run has no unit or step '{unit}'", f"see `interlock units {run_id}`")
    go_on = Follower(app, run_id).goes_on if options["follow"] else None
    row = app.store.run(run_id)
    frames = read_log(app.project.logs / f"{row.family}.log", go_on=go_on)
    if row.root is not None:
        # the log is that of all runs of the family
        frames = (frame for frame in frames if attempts.named(frame.dispatch).unit is not None)
    _show(_wanted(frames, attempts, unit, options["stream"]), attempts, options, alone=attempts.is_unit(unit))


def _wanted(frames: Iterator[Frame], attempts: Attempts, unit: str | None, stream: str | None) -> Iterator[Frame]:
    for frame in frames:
        fits = stream is None or frame.stream in {stream, "note"}
        if fits and (unit is None or attempts.named(frame.dispatch).is_of(unit)):
            yield frame


def _show(frames: Iterator[Frame], attempts: Attempts, options: dict[str, Any], *, alone: bool) -> None:
    if options["raw"]:
        for frame in frames:
            sys.stdout.buffer.write(frame.data)
            sys.stdout.buffer.flush()
        return
    for line in said(frames):
        name = attempts.named(line.dispatch)
        if options["as_json"]:
            write_json_line(
                {
                    "schema": SCHEMA,
                    "at": rfc3339(line.at_ms),
                    "unit": name.unit,
                    "attempt": name.attempt,
                    "stream": line.stream,
                    "text": line.text,
                }
            )
        else:
            say(_line(line, None if alone else name.unit))


def _line(line: Said, unit: str | None) -> str:
    text = safe(line.text)
    if line.stream == "note":
        text = style(f"[interlock: {text}]", dim=True)
    return text if unit is None else f"{style(safe(unit), dim=True)} {text}"
