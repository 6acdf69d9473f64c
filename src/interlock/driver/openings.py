"""What a driver journals before its first decision: what is to be told once, and modules that a person accepted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from interlock.decide.now import Now
from interlock.driver.family import Opening
from interlock.driver.jobs import module_hash
from interlock.model import events as ev
from interlock.model.plan import PythonFunction
from interlock.model.run import Snapshot


def first_notices(*found: tuple[str, str]) -> Opening:
    """Return what tells what the plan has to say, and what else was `found`: codes and texts, which may be empty."""

    def opening(snap: Snapshot, now: Now) -> Sequence[ev.Event]:
        if snap.above is not None:
            return []
        told = [(f"plan:{n}", text) for n, text in enumerate(snap.plan.notices)]
        told += [(code, text) for code, text in found if text]
        return [ev.Notice(at=now.at, code=code, text=text) for code, text in told]

    return opening


def accept_modules(snap: Snapshot, now: Now) -> Sequence[ev.Event]:
    """Take the modules as they are now."""
    files = {step.target.file for step in snap.plan.steps if isinstance(step.target, PythonFunction)}
    places = {file: Path(snap.plan.project.root, file) for file in sorted(files)}
    hashes = {file: module_hash(place) for file, place in places.items() if place.is_file()}
    return [ev.ModulesAccepted(at=now.at, hashes=hashes)] if hashes else []
