"""`interlock resolve`: answer for a unit whose effect is unknown."""

from __future__ import annotations

import click

from interlock.cli.acted import show_done
from interlock.cli.options import Text, example, json_option, run_argument
from interlock.cli.session import Session
from interlock.cli.text import safe
from interlock.errors import UsageError
from interlock.model.canon import NotJsonError, loads


@click.command(
    epilog=example(
        "interlock resolve last deploy:solo --done",
        """interlock resolve last deploy:solo --done --result '{"ok": true}'""",
        "interlock resolve last deploy:solo --rerun",
    )
)
@run_argument()
@click.argument("unit", type=Text(), metavar="UNIT")
@click.option("--done", is_flag=True, help="The effect took place; the unit is completed.")
@click.option("--result", metavar="JSON", help="With --done: the unit's result.")
@click.option("--rerun", is_flag=True, help="The effect did not take place; the unit may run again.")
@json_option("Print what was done as JSON.")
@click.pass_obj
def command(
    session: Session, run: str, unit: str, *, done: bool, result: str | None, rerun: bool, as_json: bool
) -> None:
    """Answer for a unit whose effect is unknown: it was done, or it may run again."""
    if done == rerun:
        raise UsageError("done-or-rerun", "say either --done or --rerun", "see `interlock resolve --help`")
    if result is not None and rerun:
        raise UsageError("result-without-done", "--result goes with --done", "leave one of the two out")
    if result is not None:
        _check(result)
    run_id = session.find(run)
    session.app.resolve(run_id, unit, done=done, result_json=result)
    text = f"unit {safe(unit)}: {'done' if done else 'may run again'}"
    show_done(session.app, run_id, "resolved", text, as_json=as_json, unit=unit, done=done)


def _check(result: str) -> None:
    try:
        loads(result)
    except NotJsonError as error:
        raise UsageError(
            "invalid-result", f"--result is not JSON: {error}", "quote strings: --result '\"text\"'"
        ) from error
