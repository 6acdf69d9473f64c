"""What a drive begins with, before the loop takes over: each gives the events to journal first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from interlock.decide import reopen
from interlock.decide.now import Now
from interlock.driver.jobs import module_hash
from interlock.model import events as ev
from interlock.model.plan import PythonFunction
from interlock.model.run import Snapshot


def go_on(snap: Snapshot, now: Now) -> Sequence[ev.Event]:
    """Continue what never completed and ask again what was unavailable."""
    return reopen.go_on(snap, now)


def notices(snap: Snapshot, now: Now) -> Sequence[ev.Event]:
    """Say once what the plan has to say."""
    return [ev.Notice(at=now.at, code=f"plan:{n}", text=text) for n, text in enumerate(snap.plan.notices)]


def accept(snap: Snapshot, now: Now) -> Sequence[ev.Event]:
    """Take the modules as they are now."""
    files = [step.target.file for step in snap.plan.steps if isinstance(step.target, PythonFunction)]
    hashes = {file: module_hash(file) for file in files if Path(file).is_file()}
    return [ev.ModulesAccepted(at=now.at, hashes=hashes)] if hashes else []
