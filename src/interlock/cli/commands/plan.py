"""`interlock plan`: what would run, what would be reused and why, before anything is spent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from interlock.cli.estimate_text import estimate_lines
from interlock.cli.findings import tell
from interlock.cli.options import RunOrFile, example, from_option, json_option, params_options
from interlock.cli.output import say, style, write_json
from interlock.cli.session import Session
from interlock.cli.text import count, safe
from interlock.driver.params import ParamsInput
from interlock.errors import UsageError
from interlock.views.preview import preview_view

_MOST_UNITS: Final = 10


@click.command(epilog=example("interlock plan review.md -p base=main", "interlock plan last --json"))
@click.argument("target", type=RunOrFile(), metavar="FILE|RUN")
@params_options
@from_option
@json_option()
@click.pass_obj
def command(session: Session, /, target: str, **options: Any) -> None:  # noqa: ANN401 - one value per option above
    """Show what a workflow FILE would run, or what continuing a RUN would, and what that may cost.

    The estimate comes from the plan and from what this project's engines were seen to use. Nothing is saved and
    nothing starts.
    """
    if not target.strip():
        raise UsageError(
            "blank-target", "the workflow or run id is blank", "give a FILE or a RUN; see `interlock list`"
        )
    params = ParamsInput(cli=list(options["params"]), file=options["params_file"])
    found = session.app.preview(target, params, on_warning=tell)
    view = preview_view(found.plan_hash, found.steps, found.estimate)
    if options["as_json"]:
        write_json(view)
        return
    say(f"plan {view['plan_hash']}")
    for step in view["steps"]:
        for line in _lines(step):
            say(line)
    asked = f", {count(len(view['ask']), 'unit')} for a person" if view["ask"] else ""
    say(f"{count(len(view['run']), 'unit')} to run, {len(view['reuse']):,} to reuse{asked}, as far as is known now")
    for line in estimate_lines(found.estimate):
        say(line)


def _lines(step: Mapping[str, Any]) -> Iterator[str]:
    yield f"{style(step['id'], bold=True)}: {step['action']} ({safe(step['why'])})"
    if step["units"] is None:
        yield "  units: not known before the steps it needs have run"
        return
    for unit in step["units"][:_MOST_UNITS]:
        if unit["why"] != "new" or len(step["units"]) > 1:
            yield f"  {safe(unit['id'])}: {unit['action']} ({safe(unit['why'])})"
    if len(step["units"]) > _MOST_UNITS:
        yield f"  and {len(step['units']) - _MOST_UNITS:,} more"
