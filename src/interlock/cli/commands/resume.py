"""`interlock resume`: reopen a failed or abandoned run, or a spent gate, and drive on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from interlock.app import App
from interlock.cli.driving import drive
from interlock.cli.options import Assignment, Duration, example, json_option, run_argument
from interlock.cli.reading import facts_of
from interlock.cli.session import Session
from interlock.errors import UsageError

CEILINGS: Final = ("max_units", "max_tokens", "max_cost_usd", "max_duration")
MOST_LOOPS: Final = 100


class Loops(click.ParamType[int]):
    """`+2` or `2`: how many loops more. Gives the number."""

    name = "loops"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401 - click's signature
        """Read the text."""
        text = str(value).removeprefix("+")
        number = int(text) if text.isascii() and text.isdigit() else 0
        if not 0 < number <= MOST_LOOPS:
            self.fail(f"'{value}' is no number of loops; write +1, or up to +{MOST_LOOPS}", param, ctx)
        return number


@click.command(
    epilog=example(
        "interlock resume last",
        "interlock resume last --raise max_units=200 --raise max_duration=4h",
        "interlock resume last --loops +2",
        "interlock resume last --accept-changes",
    )
)
@run_argument()
@click.option(
    "--raise",
    "raises",
    type=Assignment(),
    multiple=True,
    metavar="CEILING=VALUE",
    help=f"Raise a ceiling of the budget: {', '.join(CEILINGS)}.",
)
@click.option(
    "--loops", type=Loops(), metavar="+N", help="Let a step whose gate rejected its last loop try N times more."
)
@click.option("--accept-changes", is_flag=True, help="Go on with Python modules that were changed since the start.")
@json_option("Print NDJSON: one event a line, the status last.")
@click.pass_obj
def command(session: Session, /, run: str, **options: Any) -> int:  # noqa: ANN401 - one value per option above
    """Reopen a failed or abandoned run, or a spent gate, and drive on.

    What is completed stays; failed and unrun units start a new round.
    """
    raises = _ceilings(options["raises"])
    run_id = session.find(run)
    app = session.app
    if options["loops"]:
        _check_loops(app, run_id)
    return drive(
        app,
        lambda on_event: app.resume(
            run_id,
            raises=raises,
            loops=options["loops"] or 0,
            accept_changes=options["accept_changes"],
            on_event=on_event,
        ),
        as_json=options["as_json"],
    )


def _check_loops(app: App, run_id: str) -> None:
    """Refuse loops for a run in which they would change nothing."""
    rejected = list(_rejected(app, run_id))
    if any(loops for *_, loops in rejected):
        return
    if rejected:
        whose, step, _ = rejected[0]
        raise UsageError(
            "cannot-loop",
            f"step '{step}' is no prompt: doing it again with feedback would change nothing",
            f"ask its gate again with `interlock resume {run_id}`, or pass it with `interlock approve {whose} {step} --override`",
        )
    hint = f"see where it stands: interlock status {run_id}"
    raise UsageError("no-loop-to-grant", f"no gate of run {run_id} has rejected its step's last loop", hint)


def _ceilings(given: Sequence[tuple[str, str]]) -> dict[str, float]:
    raises: dict[str, float] = {}
    for name, value in given:
        known, number = ceiling(name, value)
        if known in raises:
            raise UsageError("ceiling-twice", f"--raise {name} is given twice", "give it once")
        raises[known] = number
    return raises


def ceiling(name: str, value: str) -> tuple[str, float]:
    """Read `CEILING=VALUE`: the ceiling's name in the plan, and its value there. Raises UsageError."""
    if name == "max_duration":
        return "max_duration_ms", float(Duration().convert(value, None, None))
    if name not in CEILINGS:
        raise UsageError("unknown-ceiling", f"no ceiling '{name}'", f"use one of {', '.join(CEILINGS)}")
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf") or (name != "max_cost_usd" and not number.is_integer()):
        raise UsageError("invalid-ceiling", f"{name}={value} is no ceiling", f"write a number, such as {name}=200")
    return name, number


def _rejected(app: App, run_id: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the rejected steps of the run and of those below it: the run, the step, and whether it can loop."""
    facts = facts_of(app.store)(run_id, app.store.run(run_id).plan_hash)
    for row in app.store.steps(run_id):
        if row.reason == "gate_rejected" and row.state == "blocked":
            yield run_id, row.id, facts.loops(row.step)
    for child in app.store.children(run_id):
        yield from _rejected(app, child.id)
