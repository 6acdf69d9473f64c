"""`interlock reject`: refuse what waits for a person, with a note on what has to change."""

from __future__ import annotations

import click

from interlock.cli.options import example, json_option, note_option, run_argument
from interlock.cli.session import Session
from interlock.cli.verdict import show_verdict, target_of


@click.command(
    epilog=example(
        'interlock reject last draft --note "name the sources of the figures"',
        "interlock reject last release",
    )
)
@run_argument()
@click.argument("target", required=False, metavar="[STEP|GATE-UNIT]")
@note_option("What has to change: the feedback of one more loop, where the step can loop.")
@json_option("Print what was done as JSON.")
@click.pass_obj
def command(session: Session, run: str, target: str | None, note: str, *, as_json: bool) -> None:
    """Refuse what waits for a person: of one STEP, of one GATE-UNIT, or the only thing that waits.

    With a note a prompt step does one more loop with the note as its feedback; any other step fails.
    """
    run_id = session.find(run)
    session.app.reject(run_id, target_of(session.app, run_id, target), note=note)
    show_verdict(session.app, run_id, "rejected", target, as_json=as_json)
