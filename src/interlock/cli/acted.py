"""What a command did to a run, and what to type next: in the same words and the same JSON, whatever was done."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.app import App
from interlock.cli.called import spelled
from interlock.cli.next_text import next_lines
from interlock.cli.output import say, write_json
from interlock.cli.reading import read_next, read_run
from interlock.views.values import SCHEMA


def show_done(app: App, run_id: str, did: str, text: str, *, as_json: bool, **more: Any) -> None:  # noqa: ANN401 - any JSON value
    """Say what was done and what comes next; `more` are the object's fields beside those that all have."""
    rows = read_run(app.store, run_id)
    commands = read_next(app, rows, live=app.driven(run_id))
    if not as_json:
        say(text)
        for line in next_lines(commands, "next: "):
            say(line)
        return
    run = rows.run
    found = [msgspec.structs.replace(entry, command=spelled(entry.command)) for entry in commands]
    write_json(
        {"schema": SCHEMA, "did": did, "run": run_id, "state": run.state, "reason": run.reason, **more, "next": found}
    )
