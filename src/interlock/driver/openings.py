"""What a driver journals before its first decision: what is told once, what a person raised and accepted.

Guarantee: a ceiling of the budget is only ever raised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from interlock.decide import requests
from interlock.decide.now import Now
from interlock.driver.jobs import module_hash
from interlock.driver.loop import Opening
from interlock.errors import UsageError
from interlock.model import events as ev
from interlock.model.plan import PythonFunction
from interlock.model.run import Snapshot


def first_notices(journal: str) -> Opening:
    """Return what tells what the plan has to say, and what was found when the journal was opened."""

    def opening(snap: Snapshot, now: Now) -> Sequence[ev.Event]:
        told = [(f"plan:{n}", text) for n, text in enumerate(snap.plan.notices)]
        told += [("journal", journal)] if journal else []
        return [ev.Notice(at=now.at, code=code, text=text) for code, text in told]

    return opening


def raising(ceilings: Mapping[str, float]) -> Opening:
    """Return what raises the ceilings before a run goes on. It raises UsageError for one that would not be raised."""

    def opening(snap: Snapshot, now: Now) -> Sequence[ev.Event]:
        if reason := requests.unraised(snap, dict(ceilings)):
            raise UsageError("not-raised", reason, f"see what was used: interlock status {snap.run.id}")
        return requests.raises(dict(ceilings), now)

    return opening


def accept_modules(snap: Snapshot, now: Now) -> Sequence[ev.Event]:
    """Take the modules as they are now."""
    files = {step.target.file for step in snap.plan.steps if isinstance(step.target, PythonFunction)}
    places = {file: Path(snap.plan.project.root, file) for file in sorted(files)}
    hashes = {file: module_hash(place) for file, place in places.items() if place.is_file()}
    return [ev.ModulesAccepted(at=now.at, hashes=hashes)] if hashes else []
