"""Following a run that may stand still: whoever watches it is told so, and what moves it on.

Guarantee: it is said on standard error, once for each time that it comes to a stand; following goes on.
"""

from __future__ import annotations

from interlock.app import App
from interlock.cli.next_text import next_lines
from interlock.cli.output import note
from interlock.cli.reading import read_next, read_run
from interlock.cli.text import local_time, safe
from interlock.model.states import RUN_ENDED, RunState
from interlock.store.base import RunRow


class Follower:
    """Tells whether there is more to come of one run."""

    def __init__(self, app: App, run_id: str) -> None:
        self._app = app
        self._run_id = run_id
        self._told: str | None = None

    def goes_on(self) -> bool:
        """Tell whether the run has not ended; say it where nobody drives it."""
        run = self._app.store.run(self._run_id)
        if RunState(run.state) in RUN_ENDED:
            return False
        if self._app.driven(self._run_id):
            self._told = None
        elif self._told != run.state:
            self._told = run.state
            self._say(run)
        return True

    def _say(self, run: RunRow) -> None:
        note(f"note: {_stands(run)}")
        for line in next_lines(read_next(self._app, read_run(self._app.store, run.id)), "next: "):
            note(line)


def _stands(run: RunRow) -> str:
    why = f": {safe(run.detail.splitlines()[0])}" if run.detail else ""
    if run.state == RunState.BLOCKED:
        return f"run {run.id} waits for a person{why}"
    if run.state == RunState.WAITING and run.wait_until is not None:
        return f"nobody drives run {run.id}, which waits until {local_time(run.wait_until)}{why}"
    return f"nobody drives run {run.id}; nothing more comes until somebody does"
