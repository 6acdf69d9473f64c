"""`interlock approve`: let what waits for a person pass."""

from __future__ import annotations

import click

from interlock.cli.options import example, json_option, note_option, run_argument
from interlock.cli.session import Session
from interlock.cli.verdict import show_verdict, target_of


@click.command(
    epilog=example(
        "interlock approve last",
        'interlock approve last release --note "read it, all numbers hold"',
        "interlock approve last review.gate:0a1b2c3d4e5f6789:l1",
        'interlock approve last draft --override --note "good enough for a draft"',
    )
)
@run_argument()
@click.argument("target", required=False, metavar="[STEP|GATE-UNIT]")
@note_option("Why, for the record.")
@click.option("--override", is_flag=True, help="Pass a gate that its check or judge rejected, on your own verdict.")
@json_option("Print what was done as JSON.")
@click.pass_obj
def command(session: Session, run: str, target: str | None, note: str, *, override: bool, as_json: bool) -> None:
    """Let what waits for a person pass: of one STEP, of one GATE-UNIT, or the only thing that waits.

    The approval is journaled with your name and the note, and holds for exactly the artifact that waits now.
    """
    run_id = session.find(run)
    session.app.approve(run_id, target_of(session.app, run_id, target), note=note, override=override)
    show_verdict(session.app, run_id, "approved", target, as_json=as_json)
