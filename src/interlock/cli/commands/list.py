"""`interlock list`: the project's runs, newest first."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from interlock.app import App
from interlock.cli.census_text import ending
from interlock.cli.marks import mark
from interlock.cli.options import Text, example, from_option, json_option
from interlock.cli.output import say, table, write_json_list
from interlock.cli.reading import facts_of, hide_in, stopping_of
from interlock.cli.session import Session
from interlock.cli.text import ago, duration, safe
from interlock.errors import StoreError
from interlock.model.states import RunState
from interlock.store.base import RunRow
from interlock.views.runs import run_view

_MOST: Final = 1_000_000


@click.command(epilog=example("interlock list", "interlock list --state blocked --json"))
@click.option("--state", type=click.Choice([state.value for state in RunState]), help="Only runs in this state.")
@click.option("--workflow", type=Text(), metavar="FILE", help="Only runs of this workflow, as `list` shows it.")
@click.option("--children", is_flag=True, help="Child runs too, which are units of others.")
@click.option("-n", "--limit", type=click.IntRange(1, _MOST), metavar="N", help="At most so many.")
@from_option
@json_option("Print a JSON list of run objects.")
@click.pass_obj
def command(
    session: Session, state: str | None, workflow: str | None, limit: int | None, *, children: bool, as_json: bool
) -> None:
    """List runs, newest first."""
    app = session.app
    there = app.project.journal.exists()
    rows = app.store.runs(limit=limit, state=state, workflow=workflow, children=children) if there else []
    if as_json:
        write_json_list(_views(app, rows))
    elif rows:
        table(
            ("RUN", "STATE", "STARTED", "DRIVEN", "WORKFLOW"),
            _lines(app, rows),
            (max(len(r.id) for r in rows), 28, 20, 12),
        )
    else:
        say("no runs" + ("" if state or workflow else "; start one with `interlock run FILE`"))


def _views(app: App, rows: Sequence[RunRow]) -> Iterator[dict[str, Any]]:
    if not rows:
        return
    facts, stopping = facts_of(app.store), stopping_of(app)
    for row in rows:
        try:
            with app.store.view():
                lease, hide = app.store.read_lease(row.id), hide_in(app.store, row, facts)
                view = run_view(row, lease, facts(row.id, row.plan_hash), hide, stopping=stopping(row))
        except StoreError as error:
            # `gc` may remove it while the list is written
            if error.code != "run-not-found":
                raise
            continue
        yield view


def _lines(app: App, rows: Sequence[RunRow]) -> Iterator[Sequence[str]]:
    now_ms, stopping = int(time.time() * 1000), stopping_of(app)
    for row in rows:
        state = ending(row.state, row.outcome, row.reason, stopping=stopping(row))
        yield (
            row.id,
            f"{mark(row.state).sign} {state}",
            ago(row.created_at, now_ms),
            duration(row.driven_ms),
            safe(row.workflow),
        )
