"""`interlock status`: where a run stands, why, and what to type next."""

from __future__ import annotations

import click
import msgspec

from interlock.cli.artifact import show_artifact
from interlock.cli.options import example, from_option, json_option, run_argument
from interlock.cli.output import write_json
from interlock.cli.reading import read_next, read_previews, read_run, stopping_of
from interlock.cli.session import Session
from interlock.cli.status_text import show_status
from interlock.views.status import status_view


@click.command(
    epilog=example(
        "interlock status", "interlock status last --json", "interlock status last --artifact review > review.txt"
    )
)
@run_argument(default="last")
@click.option("--artifact", "step", metavar="STEP", help="Print what this step made, whole, even if its gate is open.")
@from_option
@json_option()
@click.pass_obj
def command(session: Session, run: str, step: str | None, *, as_json: bool) -> None:
    """Show where a run stands and what to do next.

    RUN is an id, its beginning, or `last`, which is also the default. An artifact that is text is printed as it is,
    anything else as JSON; on a terminal its control characters are escaped.
    """
    run_id = session.find(run)
    if step is not None:
        show_artifact(session.app, run_id, step, as_json=as_json)
        return
    store = session.app.store
    live = session.app.driven(run_id)
    rows = read_run(store, run_id)
    rows = msgspec.structs.replace(rows, stopping=stopping_of(session.app)(rows.run))
    view = status_view(rows, read_previews(store, rows) if as_json else None)
    if as_json:
        write_json(view)
        return
    # nothing can be done about a run in an export
    commands = () if session.source else read_next(session.app, rows, live=live)
    show_status(rows, view, commands, live=live)
