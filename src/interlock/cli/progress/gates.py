"""Gates, loops, approvals and quotas as lines of progress."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from interlock.cli.text import clip, count, local_time, safe
from interlock.model import events as ev
from interlock.model.run import Snapshot

_FEEDBACK_CHARACTERS: Final = 300
_ASKS: Final[dict[ev.UnitKind, str]] = {
    "gate": "checking its gate",
    "judge": "asking the judge",
    "approval": "waits for a person to approve it",
}


def gate_line(event: ev.Event, snapshot: Snapshot, label: str = "") -> str:
    """What happens at a gate; empty for any other event. `label` stands before the step."""
    match event:
        case ev.UnitsAdded() if event.kind in _ASKS:
            many = f" ({count(len(event.units), 'question')})" if len(event.units) > 1 else ""
            return f"step {label}{snapshot.steps[event.step].id}: {_ASKS[event.kind]}{many}"
        case ev.Approved():
            said = "rejected" if event.verdict == "reject" else "overruled" if event.override else "approved"
            note = f": {clip(safe(event.note), _FEEDBACK_CHARACTERS)}" if event.note else ""
            return f"step {label}{snapshot.steps[event.step].id}: {said} by {safe(event.by)}{note}"
        case ev.LoopsGranted():
            return f"step {label}{snapshot.steps[event.step].id}: {count(event.more, 'loop')} more granted"
        case _:
            return ""


def parked(event: ev.EngineParked) -> str:
    """Say that an engine's quota is used up."""
    until = f"until {local_time(event.until)}" if event.until is not None else "and nobody knows until when"
    return f"engine {safe(event.engine)} has no quota {until}; its units wait"


def feedback_of(event: ev.StepStarted) -> str:
    """What the units of a further loop are told, of the first that is told anything."""
    told = next((unit.feedback for unit in event.units if unit.feedback), None)
    if told is None:
        return ""
    try:
        said: Any = msgspec.json.decode(told)
    except msgspec.DecodeError:
        return ""
    text = said.get("feedback") if isinstance(said, dict) else said
    return clip(safe(text), _FEEDBACK_CHARACTERS) if isinstance(text, str) else ""
