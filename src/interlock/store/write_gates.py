"""What people say to a gate: a verdict on what they saw, and more loops.

Guarantees: a verdict is taken once, for an approval unit that waits and for exactly the hash that the unit asks about;
who said it, when, with which note and whether it overrides the gate is kept beside the unit.
"""

from __future__ import annotations

from interlock.model import canon
from interlock.model import events as ev
from interlock.store.batch import Batch, RuleError
from interlock.store.write_steps import step_state


def approve(batch: Batch, group: list[ev.Approved]) -> None:
    """End approval units with a person's verdicts."""
    for event in group:
        answer = canon.dumps({"feedback": event.note, "verdict": event.verdict})
        place = (batch.seq, event.step, event.unit)
        if batch.one("approve_unit", event.verdict, answer, event.at, *place, event.subject) == 0:
            raise RuleError(
                "approval-refused",
                f"unit {event.unit} of step {event.step} does not wait for a person's verdict on {event.subject}",
            )
        said = (event.at, event.by, event.verdict, event.subject, event.override, event.note)
        batch.one("insert_approval", *place, *said)
        batch.log_event(event)


def grant_loops(batch: Batch, group: list[ev.LoopsGranted]) -> None:
    """Add to the loops that steps may run."""
    for event in group:
        step_state(batch, event.step)
        batch.one("grant_loops", batch.seq, event.step, event.more)
        batch.log_event(event)
