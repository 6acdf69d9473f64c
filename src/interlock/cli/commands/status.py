"""`interlock status`: where a run stands, why, and what to type next."""

from __future__ import annotations

import click

from interlock.cli.options import example, json_option, run_argument
from interlock.cli.output import write_json
from interlock.cli.reading import read_previews, read_run, read_unknown
from interlock.cli.session import Session
from interlock.cli.status_text import show_status
from interlock.views.advice import next_commands
from interlock.views.status import status_view


@click.command(epilog=example("interlock status", "interlock status 01JD --json"))
@run_argument(default="last")
@json_option()
@click.pass_obj
def command(session: Session, run: str, *, as_json: bool) -> None:
    """Show where a run stands and what to do next.

    RUN is an id, its beginning, or `last`, which is also the default.
    """
    run_id = session.find(run)
    store = session.app.store
    rows = read_run(store, run_id)
    view = status_view(rows, read_previews(store, rows) if as_json else None)
    if as_json:
        write_json(view)
        return
    live = session.app.driven(run_id)
    stopping = live and any(request.kind == "abandon" for request in store.requests(run_id))
    commands = next_commands(rows.run, rows.steps, read_unknown(store, rows), live=live)
    show_status(rows, view, commands, live=live, stopping=stopping)
