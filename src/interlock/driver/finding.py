"""Which run a person means."""

from __future__ import annotations

from pathlib import Path

from interlock.errors import UsageError
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
