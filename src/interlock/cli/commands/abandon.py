"""`interlock abandon`: end a run for good, but for `resume`."""

from __future__ import annotations

import click

from interlock.cli.acted import show_done
from interlock.cli.options import example, json_option, run_argument
from interlock.cli.session import Session
from interlock.cli.text import safe


@click.command(epilog=example("interlock abandon last"))
@run_argument()
@json_option("Print what was done as JSON.")
@click.pass_obj
def command(session: Session, run: str, *, as_json: bool) -> None:
    """End a run for good; only `resume` reopens it.

    A driver at work is asked to stop; the run shows `stopping` until its children are gone.
    """
    result = session.app.abandon(session.find(run))
    text = f"run {result.run_id} {result.reason or result.state}" + (
        f": {safe(result.detail)}" if result.detail else ""
    )
    show_done(session.app, result.run_id, "abandoned", text, as_json=as_json)
