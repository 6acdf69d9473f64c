"""Which run a person means, and which one he may have meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from interlock.errors import UsageError
from interlock.model.states import RUN_ENDED, RunState
from interlock.store.base import Store


def find_run(store: Store, text: str, root: Path) -> str:
    """Return the full id of the run that `text` names: an id, a unique beginning of one, or `last`.

    Raises UsageError; `root` is the project's, for its text.
    """
    if text == "last":
        newest = store.runs(limit=1)
        if not newest:
            raise UsageError("no-runs", "there are no runs in this project yet", "start one: interlock run FILE")
        return newest[0].id
    found = store.match(text)
    if text in found or len(found) == 1:
        return text if text in found else found[0]
    if found:
        raise UsageError("ambiguous-run", f"'{text}' fits several runs: {', '.join(found)}", "give more of the id")
    raise UsageError("run-not-found", f"no run '{text}' in {root}", "see them: interlock list")


def same_key(store: Store, run_id: str, key: str, driven: Callable[[str], bool]) -> str:
    """Say which other run of the workflow has the key of the new run, and why it was not continued; else nothing."""
    new = store.run(run_id)
    found = next((row for row in store.runs(workflow=new.workflow) if row.key == key and row.id != run_id), None)
    if found is None:
        return ""
    other = (
        "other params" if found.plan_hash == new.plan_hash else "another plan: file, configuration or commit changed"
    )
    told = f"run {found.id} has the same key but {other}; it is {found.state}"
    if RunState(found.state) in RUN_ENDED:
        return told
    if driven(found.id):
        return f"{told} and under way; watch it with `interlock events {found.id} --follow`"
    return f"{told}; continue it with `interlock run {found.id}`"
