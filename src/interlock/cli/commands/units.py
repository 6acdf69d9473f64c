"""`interlock units`: a run's units, streamed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import click
import msgspec

from interlock.cli.marks import mark
from interlock.cli.options import example, from_option, json_option, run_argument
from interlock.cli.output import table, write_json_list
from interlock.cli.reading import facts_of, hidden, hide_in, read_effective
from interlock.cli.session import Session
from interlock.cli.text import clip, compact, duration, safe
from interlock.cli.usage_text import money
from interlock.errors import UsageError
from interlock.model.states import UnitState
from interlock.store.base import StepRow, Store, UnitRow
from interlock.views.units import unit_view


@click.command(epilog=example("interlock units last --state failed", "interlock units last --step review --json"))
@run_argument()
@click.option("--step", metavar="STEP", help="Only units of this step.")
@click.option("--state", type=click.Choice([state.value for state in UnitState]), help="Only units in this state.")
@click.option(
    "--all", "everything", is_flag=True, help="Earlier rounds and loops, gate, judge, approval and probe units too."
)
@from_option
@json_option("Print a JSON list of units.")
@click.pass_obj
def command(
    session: Session, run: str, step: str | None, state: str | None, *, everything: bool, as_json: bool
) -> None:
    """List the units of a run that count: of each item the last one.

    Where the workflow asks engines it shows engine, model, tokens, cost and the agent's session, with which you can go
    on by hand; `-` is unknown.
    """
    run_id = session.find(run)
    store = session.app.store
    steps = store.steps(run_id)
    ids = [row.id for row in steps]
    index = _index(ids, step)
    run_row = store.run(run_id)
    facts_by = facts_of(store)
    facts = facts_by(run_id, run_row.plan_hash)
    hide = hide_in(store, run_row, facts_by)
    found = (
        store.units(run_id, step=index, state=state)
        if everything
        else read_effective(store, run_id, step=index, state=state)
    )
    rows = (hidden(row, hide) for row in found)
    if as_json:
        write_json_list(unit_view(row, ids[row.step]) for row in rows)
        return
    asked = _ENGINE if facts.engines else ()
    columns = (*_FIRST, *asked, *_LAST)
    table(
        ("UNIT", *(column.head for column in columns), "RESULT OR ERROR"),
        ((safe(row.id), *(column.cell(row) for column in columns), _said(row)) for row in rows),
        (_width(store, run_id, steps, everything=everything), *(column.width for column in columns)),
    )


def _index(ids: list[str], step: str | None) -> int | None:
    if step is None:
        return None
    if step not in ids:
        from interlock.plan.diagnose import suggest  # noqa: PLC0415 - only a typing slip needs it

        raise UsageError("unknown-step", f"the run has no step '{step}'", suggest(step, ids))
    return ids.index(step)


def _width(store: Store, run_id: str, steps: Sequence[StepRow], *, everything: bool) -> int:
    """Wide enough for the longest unit id, without reading all units; later rounds and loops and gates have longer ones."""
    longest = 8
    for row in steps:
        first = next(iter(store.units(run_id, step=row.step, limit=1)), None)
        later = f"~r{row.round}" * (row.round > 1) + f"~l{row.loop}" * (row.loop > 1)
        longest = max(longest, len(first.id + later) if first else len(row.id))
    return min(longest + len(_GATE_PARTS), 80) if everything else min(longest, 64)


_GATE_PARTS: Final = ".gate~r2:l2.approval"


class _Column(msgspec.Struct, frozen=True):
    head: str
    width: int
    cell: Callable[[UnitRow], str]


def _state(row: UnitRow) -> str:
    return f"{mark(row.state).sign} {row.state}" + (f" ({row.reason})" if row.reason else "")


def _took(row: UnitRow) -> str:
    return duration(row.ended_at - row.started_at) if row.ended_at and row.started_at else "-"


def _said(row: UnitRow) -> str:
    if row.reused is not None and row.kind == "work":
        result = (row.result or b"").decode("utf-8", "replace")
        return clip(safe(f"(from {row.reused.run}) {result[:400]}"), 80)
    # a person or a probe may say that it was done; what its last attempt said stays in the row
    error = "" if row.state == UnitState.COMPLETED else row.error
    said = error or (row.result or b"").decode("utf-8", "replace")
    return clip(safe(said[:400]), 80)


_FIRST: Final = (
    _Column("STATE", 24, _state),
    _Column("TRY", 3, lambda row: "-" if row.reused else str(row.attempt)),
    _Column("TOOK", 10, _took),
)
_ENGINE: Final = (
    _Column("ENGINE", 10, lambda row: safe(row.engine or "-")),
    _Column("MODEL", 20, lambda row: safe(row.model or "-")),
    _Column("TOKENS", 9, lambda row: "-" if row.tokens is None else f"{row.tokens:,}"),
    _Column("COST", 9, lambda row: "-" if row.cost_usd is None else money(row.cost_usd)),
    _Column("SESSION", 36, lambda row: safe(row.session or "-")),
)
"""Shown where the workflow asks an engine at all."""
_LAST: Final = (
    _Column("ITEM", 28, lambda row: "-" if row.item is None else compact(row.item.decode("utf-8", "replace"), 28)),
)
