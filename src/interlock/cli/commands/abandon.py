"""`interlock abandon`: end a run for good, but for `resume`."""

from __future__ import annotations

import click

from interlock.cli.options import example, run_argument
from interlock.cli.output import say
from interlock.cli.session import Session
from interlock.cli.text import safe


@click.command(epilog=example("interlock abandon last"))
@run_argument()
@click.pass_obj
def command(session: Session, run: str) -> None:
    """End a run for good; only `resume` reopens it.

    A driver at work is asked to stop; the run shows `stopping` until its children are gone.
    """
    result = session.app.abandon(session.find(run))
    say(f"run {result.run_id} {result.reason or result.state}" + (f": {safe(result.detail)}" if result.detail else ""))
