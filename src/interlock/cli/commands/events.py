"""`interlock events`: a run's history, and what is being added to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from interlock.cli.following import Follower
from interlock.cli.options import example, from_option, json_option, run_argument
from interlock.cli.output import say, style, write_json_line
from interlock.cli.reading import namer
from interlock.cli.session import Session
from interlock.cli.text import compact, safe
from interlock.store.base import EventRow, Store
from interlock.views.events import event_row_view

_PAGE: Final = 1000
_POLL_S: Final = 0.2
_NOT_FOR_PEOPLE: Final = frozenset(
    [
        "schema",
        "type",
        "at",
        "step",
        "unit",
        "id",
        "run",
        "dispatch",
        "process",
        "log",
        "started_at",
        "artifact_hash",
        "plan_hash",
        "steps",
        "units",
    ]
)


@click.command(epilog=example("interlock events last --follow", "interlock events last --json"))
@run_argument()
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@from_option
@json_option("Print NDJSON, one event a line.")
@click.pass_obj
def command(session: Session, run: str, *, follow: bool, as_json: bool) -> None:
    """Show a run's history: every event of the journal, in order."""
    session.refuse_following(follow=follow)
    run_id = session.find(run)
    store = session.app.store
    name = namer(store, run_id)
    goes_on = Follower(session.app, run_id).goes_on if follow else lambda: False
    for row in _rows(store, run_id, goes_on):
        view = event_row_view(row, name)
        if as_json:
            write_json_line(view)
        else:
            say(_line(view))


def _rows(store: Store, run_id: str, goes_on: Callable[[], bool]) -> Iterator[EventRow]:
    after = 0
    last_look = False
    while True:
        page = store.events(run_id, after, _PAGE)
        yield from page
        if page:
            after = page[-1].id
        elif last_look:
            return
        else:
            # once more after a "no": something may have been written before it was said
            last_look = not goes_on()
            if not last_look:
                time.sleep(_POLL_S)


def _line(view: dict[str, Any]) -> str:
    about = view["unit"] or view["step"] or ""
    rest = " ".join(
        f"{key}={compact(entry, 80)}" for key, entry in view.items() if key not in _NOT_FOR_PEOPLE and entry is not None
    )
    return f"{style(view['at'], dim=True)}  {view['type']:<17}  {safe(about)}{'  ' if about and rest else ''}{rest}".rstrip()
