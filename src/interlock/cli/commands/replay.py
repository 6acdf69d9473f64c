"""`interlock replay`: a recorded run's answers, played back to its workflow or to a changed one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interlock.cli.options import example, from_option, json_option, params_options, run_argument
from interlock.cli.output import say, write_json
from interlock.cli.session import Session
from interlock.cli.text import safe
from interlock.driver.params import ParamsInput
from interlock.errors import InterlockError
from interlock.views.replay import replay_view

if TYPE_CHECKING:
    from collections.abc import Iterable

    from interlock.driver.replay.report import Replay

_SHOWN = 20


@click.command(
    epilog=example(
        "interlock replay last",
        "interlock replay last --workflow review.md",
        "interlock replay last --fault timeout@review:3",
        "interlock replay --from run.export.gz",
    )
)
@run_argument(default="last")
@from_option
@click.option(
    "--workflow",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Play the answers to this workflow instead of the run's own plan.",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="REASON@STEP[.check|.judge][:ITEM|:N]",
    help="Fail one dispatch of STEP, or of what its gate asks: the first, the N-th, or the first of an item. Repeat it. "
    "A step in a child workflow is STEP>STEP, in the child of one item STEP[ITEM]>STEP.",
)
@params_options
@json_option()
@click.pass_obj
def command(session: Session, /, run: str, **options: Any) -> int:  # noqa: ANN401 - one value per option above
    """Play a recorded RUN back, with no engine called and no process begun; without RUN, the last one.

    Parameters are the recorded run's unless -p says otherwise.

    Exits 0 when it comes out as recorded and 1 when it does not; with --fault, as the replayed run would.
    """
    given = ParamsInput(cli=list(options["params"]), file=options["params_file"])
    found = session.app.replay(
        session.find(run),
        workflow=options["workflow"],
        faults=options["faults"],
        params=given if given.cli or given.file else None,
    )
    if options["as_json"]:
        write_json(replay_view(found))
    else:
        _show(found)
    if found.faults_unused:
        text, why = next(iter(found.faults_unused.items()))
        message = f"no dispatch met the fault {text}: {why}"
        raise InterlockError("fault-not-met", message, "the replay shows what was dispatched; name a fault that fits")
    return found.exit_code


def _show(found: Replay) -> None:
    end = f"{found.state} ({found.outcome or found.reason})" if found.outcome or found.reason else found.state
    say(f"replay of {found.run_id}: {end}, {found.answered} answers from the record")
    for step in found.steps:
        mark = "same   " if step.same else "differs"
        say(f"  {mark}  {safe(step.id)}: {step.state}" + (f" ({step.reason})" if step.reason else ""))
    _list("faults added", (f"{unit}: {text}" for unit, text in found.faulted.items()))
    _list("not recorded", found.not_recorded.values())
    _list("changed inputs, answered all the same", found.changed)
    _list("faults that no dispatch met", (f"{text}: {why}" for text, why in found.faults_unused.items()))
    _list("differences", found.differences)
    if not found.differences:
        say("as recorded")


def _list(title: str, lines: Iterable[str]) -> None:
    every = list(lines)
    if not every:
        return
    say(f"{title}:")
    for line in every[:_SHOWN]:
        say(f"  {safe(line)}")
    if len(every) > _SHOWN:
        say(f"  and {len(every) - _SHOWN} more")
