"""`run --confirm-over`: a person says yes before a run that may cost more than they said is started."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from interlock.app import App
from interlock.cli.estimate_text import at_most, estimate_lines
from interlock.cli.output import note
from interlock.cli.usage_text import money
from interlock.driver.params import ParamsInput
from interlock.errors import UsageError


def confirm_over(app: App, target: str | Path, params: ParamsInput, most_usd: float) -> None:
    """Return when the run surely costs no more, or a person at the terminal agreed; else raise UsageError.

    The estimate and the question go to standard error, since standard output may be a program's.
    """
    estimate = app.preview(target, params).estimate
    for line in estimate_lines(estimate):
        note(line)
    if not estimate.may_cost_over(most_usd):
        return
    cost = f"this may cost {at_most(estimate.cost_usd)}, and --confirm-over says {money(most_usd)}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "needs-confirmation",
            f"not started: {cost}, and there is no terminal to ask at",
            "raise --confirm-over, cap the workflow with `budget: { max_cost_usd: N }`, or start it from a terminal",
        )
    if not click.confirm(f"{cost}. Start it?", default=False, err=True):
        raise UsageError("not-confirmed", "not started, as you said", "nothing was run and nothing was spent")
