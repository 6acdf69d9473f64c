"""`run --confirm-over`: a person says yes before a run that may cost more than they said is started."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from interlock.app import App
from interlock.cli.estimate_text import estimate_lines
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
    most = estimate.cost_usd.upper
    if most is None:
        cost, hint = "what it may cost is not known", "start it from a terminal, where you are asked"
    else:
        cost = f"it may cost up to {money(most)}, and --confirm-over says {money(most_usd)}"
        hint = "raise --confirm-over, start it from a terminal, or give the workflow `budget: { max_cost_usd: N }`"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("needs-confirmation", f"not started: {cost}, and there is no terminal to ask at", hint)
    if not click.confirm(f"{cost}. Start it?", default=False, err=True):
        raise UsageError("not-confirmed", "not started, as you said", "nothing was run and nothing was spent")
