"""`interlock fork`: a new run that takes over what an old one did on the same input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from interlock.cli.driving import drive
from interlock.cli.estimate_text import estimate_lines
from interlock.cli.findings import warn
from interlock.cli.options import example, json_option, params_options, run_argument
from interlock.cli.output import say, style, write_json
from interlock.cli.session import Session
from interlock.cli.text import count, safe
from interlock.cli.usage_text import money
from interlock.driver.forking import ForkOrder
from interlock.driver.params import ParamsInput
from interlock.views.fork import fork_view

_MOST_UNITS: Final = 10


@click.command(
    epilog=example(
        "interlock fork last --explain",
        "interlock fork last",
        "interlock fork last --workflow review.md --from verdict -p base=main",
    )
)
@run_argument()
@click.option(
    "--workflow",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Use this workflow; else the file of the old run as it is now.",
)
@click.option("--from", "from_step", metavar="STEP", help="Take every step written before STEP as the old run left it.")
@click.option(
    "--explain", is_flag=True, help="Say what would be reused and run, why, and what is at stake; start nothing."
)
@params_options
@json_option("Print NDJSON: one event a line, the status last. With --explain: one object.")
@click.pass_obj
def command(session: Session, /, run: str, **options: Any) -> int:  # noqa: ANN401 - one value per option above
    """Start a new run from an old RUN: what it completed on the same input is taken over and costs nothing.

    Parameters are the old run's unless -p says otherwise. Approvals are never taken over.
    """
    app = session.app
    order = ForkOrder(
        run=session.find(run),
        workflow=options["workflow"],
        from_step=options["from_step"],
        params=ParamsInput(cli=list(options["params"]), file=options["params_file"]),
    )
    if not options["explain"]:
        return drive(
            app, lambda on_event: app.fork(order, on_event=on_event, on_warning=warn), as_json=options["as_json"]
        )
    found = app.explain_fork(order)
    view = fork_view(found, found.estimate)
    if options["as_json"]:
        write_json(view)
        return 0
    for step in view["steps"]:
        for line in _lines(step, more=step["id"] in found.beside):
            say(line)
    say(f"{view['reused']:,} reused, saving {_stake(view['saved'])}")
    again = f"the old run used {_stake(view['again'])} for that"
    say(f"{count(view['to_run'], 'unit')} to run, as far as is known now; {again}")
    for line in estimate_lines(found.estimate):
        say(line)
    return 0


def _lines(step: Mapping[str, Any], *, more: bool) -> Iterator[str]:
    yield f"{style(step['id'], bold=True)}: {step['action']} ({safe(step['why'])})"
    units = step["units"] or ()
    for unit in units[:_MOST_UNITS]:
        yield f"  {safe(unit['id'])}: {unit['action']} ({safe(unit['why'])}), {_stake(unit)}"
    if len(units) > _MOST_UNITS:
        yield f"  and {len(units) - _MOST_UNITS:,} more"
    if len(units) > 1 or more:
        what = "with all loops and judges, saved" if more else "saved"
        yield f"  {what} {_stake(step['saved'])}; to run again {_stake(step['again'])}"


def _stake(stake: Mapping[str, Any]) -> str:
    tokens = "tokens unknown" if stake["tokens"] is None else f"{stake['tokens']:,} tokens"
    return f"{tokens}, {'cost unknown' if stake['cost_usd'] is None else money(stake['cost_usd'])}"
